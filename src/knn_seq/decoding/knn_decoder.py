from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from knn_seq.combine import COMBINERS, Combiner, has_own_temperature
from knn_seq.decoding.clusters import Clusters, open_clusters
from knn_seq.decoding.outage import Outage
from knn_seq.decoding.pointers import Pointers
from knn_seq.decoding.searches import Searches
from knn_seq.decoding.skip import SkipNetwork, open_skip
from knn_seq.decoding.step import KnnBatch
from knn_seq.decoding.stored_settings import PARTS, stored_settings
from knn_seq.errors import KnnSeqError
from knn_seq.models import Model, Source
from knn_seq.retrieve import RETRIEVERS, Retriever
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.settings import SearchSettings, override
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory


class KnnDecoder:
    """A model that decodes with the neighbours of a datastore or a translation memory.

    Here, and nowhere else, settings become a retriever, a combiner and limits.  Each part is opened once, whatever
    settings it is asked with later.

    Args:
        store: What is searched.
        model: What asks.
        options: Fields of `SearchSettings` that hold instead of the store's own.
    """

    def __init__(
        self, store: DatastoreFolder | TranslationMemory, model: Model, options: Mapping[str, Any] | None = None
    ) -> None:
        self.store, self.model, self.options = store, model, dict(options or {})
        # What a translation memory, which has no settings of its own, is searched with.
        self.memory_settings = SearchSettings(retriever="memory", combiner="distance")
        self._retrievers: dict[str, Retriever] = {}
        self._combiners: dict[str, Combiner] = {}
        self._skips: dict[str, SkipNetwork] = {}
        self._clusters: Clusters | None = None
        self._outages: defaultdict[str | None, Outage] = defaultdict(Outage)  # of the index of that name

    def settings(self, options: Mapping[str, Any] | None = None) -> SearchSettings:
        """The store's own settings for the parts that are named, with the decoder's and these options in place."""
        given = {**self.options, **{name: value for name, value in (options or {}).items() if value is not None}}
        if isinstance(self.store, TranslationMemory):
            own = self.memory_settings
        else:
            own = stored_settings(self.store, *(given.get(part) for part in PARTS))
            if given.get("temperature") is not None and has_own_temperature(own.combiner) and not given.get("combiner"):
                # Who gives a temperature wants a combiner that has one.
                own = stored_settings(self.store, given.get("retriever"), "fixed", given.get("index"))
        return override(override(own, self.options), options or {})

    def retriever(self, settings: SearchSettings) -> Retriever:
        """The retriever that these settings name."""
        key = json.dumps([settings.retriever, settings.index, dict(settings.retriever_options)], sort_keys=True)
        if key not in self._retrievers:
            self._retrievers[key] = RETRIEVERS.get(settings.retriever).open(self.store, self.model, settings)
        return self._retrievers[key]

    def combiner(self, settings: SearchSettings) -> Combiner:
        """The combiner that these settings name."""
        key = _combiner_key(settings)
        if key not in self._combiners:
            self._combiners[key] = COMBINERS.get(settings.combiner).open(self.store, self.model, settings)
        return self._combiners[key]

    def use_combiner(self, settings: SearchSettings, combiner: Combiner, skip: SkipNetwork | None = None) -> None:
        """Take this combiner, and what skips searches, from now on, where these settings name them."""
        self._combiners[_combiner_key(settings)] = combiner
        if skip is not None:
            self._skips[_combiner_key(settings)] = skip

    def close(self) -> None:
        """Let go of all retrievers and combiners, with their indexes; they are opened again when they are asked for."""
        self._retrievers.clear()
        self._combiners.clear()
        self._skips.clear()
        self._clusters = None

    def batch(
        self,
        sources: Sequence[Source],
        settings: SearchSettings,
        stopwatch: Stopwatch | None = None,
        searches: Searches | None = None,
    ) -> KnnBatch | None:
        """What adds neighbours to the steps of a batch; None: the model decodes it alone.

        Args:
            sources: The sentences.
            settings: How neighbours are found and how much they count.
            stopwatch: Told what searching and combining take.
            searches: Told how many rows wanted neighbours, and how many were searched.
        """
        if not settings.weight:
            return None
        combiner, outage = self.combiner(settings), self._outages[settings.index]
        retriever = outage.ask(lambda: self.retriever(settings), settings)
        if retriever is None:
            return None
        skip = self._skip(settings) if settings.skip else None
        pointers = self._pointers(settings) if settings.pointers else None
        return KnnBatch(retriever, combiner, settings, sources, stopwatch, outage, skip, pointers, searches)

    def _pointers(self, settings: SearchSettings) -> Pointers:
        if not isinstance(self.store, DatastoreFolder):
            raise KnnSeqError("A translation memory has no pointers: leave --pointers out, or build a datastore.")
        if settings.clusters and self._clusters is None:
            self._clusters = open_clusters(self.store)
        return Pointers(self.store, settings, self._clusters if settings.clusters else None)

    def _skip(self, settings: SearchSettings) -> SkipNetwork:
        key = _combiner_key(settings)
        if key not in self._skips:
            self._skips[key] = open_skip(self.store, settings)
        return self._skips[key]


def _combiner_key(settings: SearchSettings) -> str:
    """A combiner may depend on who finds its neighbours."""
    parts = [settings.combiner, settings.retriever, settings.index, dict(settings.combiner_options)]
    return json.dumps(parts, sort_keys=True)

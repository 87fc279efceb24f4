from __future__ import annotations

import copy
import json
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from knn_seq.combine import COMBINERS, Combiner, has_own_temperature
from knn_seq.decoding.clusters import Clusters, open_clusters
from knn_seq.decoding.outage import Outage
from knn_seq.decoding.pointers import Pointers
from knn_seq.decoding.searches import Searches
from knn_seq.decoding.skip import SkipNetwork, Skipping, open_skip
from knn_seq.decoding.step import KnnBatch
from knn_seq.decoding.stored_settings import PARTS, stored_settings
from knn_seq.decoding.stored_shortlist import attach_shortlist
from knn_seq.errors import InvalidSetting, KnnSeqError
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
        attach_shortlist(store, model)
        # What a translation memory, which has no settings of its own, is searched with.
        self.memory_settings = SearchSettings(retriever="memory", combiner="distance")
        self._retrievers: dict[str, tuple[Retriever, SearchSettings]] = {}
        self._combiners: dict[str, Combiner] = {}
        self._skips: dict[str, SkipNetwork] = {}
        self._refreshing = threading.Lock()
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
        settings = override(override(own, self.options), options or {})
        RETRIEVERS.get(settings.retriever), COMBINERS.get(settings.combiner)  # refuse a wrong name before any input
        return settings

    def retriever(self, settings: SearchSettings) -> Retriever:
        """The retriever that these settings name."""
        key = json.dumps([settings.retriever, settings.index, dict(settings.retriever_options)], sort_keys=True)
        if key not in self._retrievers:
            generation = self._generation()
            made = RETRIEVERS.get(settings.retriever).open(self.store, self.model, settings)
            if isinstance(self.store, DatastoreFolder) and self._generation() != generation:  # replaced meanwhile
                self._renew(self.store)
            self._retrievers[key] = made, settings
        return self._retrievers[key][0]

    def refresh(self) -> None:
        """Search the newest generation of the datastore from now on; batches that have begun keep theirs.

        Nothing is opened again that did not change, and if nothing did, this costs as much as looking at one file.
        """
        if isinstance(self.store, DatastoreFolder) and self.store.changed():
            with self._refreshing:
                if self.store.changed():
                    self._renew(self.store.snapshot())

    def frozen(self) -> KnnDecoder:
        """The same decoder, which keeps the present generation even if this one is refreshed."""
        kept = copy.copy(self)
        kept._retrievers, kept._combiners = dict(self._retrievers), dict(self._combiners)
        kept._skips = dict(self._skips)
        return kept

    def _generation(self) -> int:
        return self.store.manifest.generation if isinstance(self.store, DatastoreFolder) else 0

    def _renew(self, store: DatastoreFolder) -> None:
        retrievers = {
            key: (retriever.renewed(store, self.model, settings), settings)
            for key, (retriever, settings) in self._retrievers.items()
        }
        combiners = {key: combiner.renewed(store) for key, combiner in self._combiners.items()}
        self.store, self._retrievers, self._combiners = store, retrievers, combiners

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
        at_once: bool = True,
        searches: Searches | None = None,
    ) -> KnnBatch | None:
        """What adds neighbours to the steps of some sentences; None: the model decodes them alone.

        Args:
            sources: The sentences.
            settings: How neighbours are found and how much they count.
            stopwatch: Told what searching and combining take.
            at_once: All sentences are in the batch from the first step on; else they enter as the search says.
            searches: Told how many rows wanted neighbours, and how many were searched.
        """
        if not settings.weight:
            return None
        combiner, outage = self.combiner(settings), self._outages[settings.index]
        retriever = outage.ask(lambda: self.retriever(settings), settings)
        if retriever is None and at_once:
            return None
        reopen = partial(self.retriever, settings)
        skipping, pointers = self._skipping(settings), self._pointers(settings)
        parts = (stopwatch, outage, skipping, at_once, reopen, pointers, searches)
        return KnnBatch(retriever, combiner, settings, sources, *parts)

    def _pointers(self, settings: SearchSettings) -> Pointers | None:
        if not settings.pointers:
            return None
        if settings.skip is not None:
            raise InvalidSetting("Pointers and skipping both save searches: give --pointers or --skip, not both.")
        if not isinstance(self.store, DatastoreFolder):
            raise KnnSeqError("A translation memory has no pointers: leave --pointers out, or build a datastore.")
        if settings.clusters and self._clusters is None:
            self._clusters = open_clusters(self.store)
        return Pointers(self.store, settings, self._clusters if settings.clusters else None)

    def _skipping(self, settings: SearchSettings) -> Skipping | None:
        if settings.skip is None:
            return None
        key = _combiner_key(settings)
        if key not in self._skips:
            self._skips[key] = open_skip(self.store, settings)
        assert isinstance(self.store, DatastoreFolder)
        return Skipping(self._skips[key], self.store)


def _combiner_key(settings: SearchSettings) -> str:
    """A combiner may depend on who finds its neighbours."""
    parts = [settings.combiner, settings.retriever, settings.index, dict(settings.combiner_options)]
    return json.dumps(parts, sort_keys=True)

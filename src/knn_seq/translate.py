"""The Translator: what a user of the Python API holds."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from knn_seq.combine import COMBINERS
from knn_seq.corpus import Corpus
from knn_seq.datastore import Datastore
from knn_seq.errors import UserError
from knn_seq.memory import TranslationMemory
from knn_seq.models import Model, Source, load_model
from knn_seq.models.ensemble import Ensemble
from knn_seq.outage import Outage
from knn_seq.retrieve import RETRIEVERS, Retriever
from knn_seq.settings import DecodingSettings, ModelSettings, SearchSettings, override, reject_unknown
from knn_seq.steer import NeighbourSteer
from knn_seq.stopwatch import Stopwatch
from knn_seq.translation import Translation

WAY = ("retriever", "combiner", "index")  # settings that say how is searched: a datastore has others for each

# How a translation memory is calibrated: in seconds, and for few keys, of which far neighbours are no use.
CALIBRATION_SENTENCES = 32
CALIBRATION_K = (2, 4, 8, 16, 32)
CALIBRATION_FLOOR = 0.05


class Translator:
    """Translates with a model that a datastore, or a translation memory, adapts to its domain.

    Args:
        store: The datastore or its folder.
        model: The model: a hub name, a path, BACKEND:NAME or a loaded one.  A datastore needs it only if it is no
            longer where it was when the datastore was built.
        ensemble: Further models with the same vocabulary that decide together with the first.
        device: Where the models run; None: CUDA if there is, else the CPU.
        dtype: What they compute in; None: what the keys were computed in.
        memory: Instead of a datastore, sentence pairs that are searched as they are: a TSV or JSON-lines file, a
            corpus, or an opened memory.  Without a temperature, k, temperature and weight are measured on a few of
            them, which takes seconds.
        quiet: Show no progress while a memory is made ready.
        **settings: Other defaults than the datastore's own: any field of `SearchSettings` or `DecodingSettings`; with a
            memory also of `ModelSettings`, such as `source_lang` and `target_lang`.
    """

    def __init__(
        self,
        store: Datastore | str | Path | None = None,
        model: str | Model | None = None,
        ensemble: Sequence[str | Model] = (),
        device: str | None = None,
        dtype: str | None = None,
        *,
        memory: TranslationMemory | Corpus | str | Path | None = None,
        quiet: bool = False,
        **settings: Any,
    ) -> None:
        self.store, wanted, self.search = self._opened(store, memory, model, settings, quiet)
        self._given = settings
        self.search = override(self.search, settings)
        self.decoding = override(DecodingSettings(), settings)
        wanted = override(wanted, {"device": device, "dtype": dtype})
        lead = _loaded(model or wanted.name, wanted)
        if isinstance(self.store, Datastore):
            self.store.require_fitting(lead)
        self.model = Ensemble([lead, *(_loaded(other, wanted) for other in ensemble)]) if ensemble else lead
        self._retrievers: dict[SearchSettings, Retriever] = {}
        self._outages: defaultdict[str | None, Outage] = defaultdict(Outage)  # of the index of that name
        self.stopwatch: Stopwatch | None = None  # told where the time of decoding goes
        self._lock = threading.Lock()  # hooks belong to the model, not to a thread
        if isinstance(self.store, TranslationMemory) and settings.get("temperature") is None and self.search.weight:
            self.search = override(override(self.search, self._calibrated(self.store, quiet)), settings)

    @staticmethod
    def _opened(
        store: Datastore | str | Path | None,
        memory: TranslationMemory | Corpus | str | Path | None,
        model: str | Model | None,
        settings: dict[str, Any],
        quiet: bool,
    ) -> tuple[Datastore | TranslationMemory, ModelSettings, SearchSettings]:
        """What is searched, and its own settings of the model and of the search."""
        if store is not None and memory is not None:
            raise UserError("Give a datastore or a translation memory, not both.")
        if store is not None:
            reject_unknown(settings, SearchSettings, DecodingSettings)
            store = store if isinstance(store, Datastore) else Datastore(store)
            return store, store.model_settings, store.settings_for(*map(settings.get, WAY))
        if memory is None:
            raise UserError("Give a datastore's folder or a translation memory (--memory).")
        if model is None:
            raise UserError("A translation memory does not say which model it is for: give one (--model).")
        reject_unknown(settings, SearchSettings, DecodingSettings, ModelSettings)
        if not isinstance(memory, TranslationMemory):
            memory = TranslationMemory.open(memory, quiet)
        wanted = ModelSettings(model if isinstance(model, str) else model.settings.name)
        return memory, override(wanted, settings), SearchSettings(retriever="memory", combiner="distance")

    def _calibrated(self, memory: TranslationMemory, quiet: bool) -> dict[str, Any]:
        from knn_seq.build.calibrate import most_likely
        from knn_seq.likelihood import Reference

        chosen = np.random.default_rng(0).permutation(len(memory))[:CALIBRATION_SENTENCES].tolist()
        sources, cut = self.read([memory.texts[number][0] for number in chosen])
        targets = self.model.tokenizer.encode_targets([memory.texts[number][1] for number in chosen])
        longest = self.model.max_length or max(map(len, targets))
        sample = [
            Reference(source, target, number)
            for number, source, target, too_long in zip(chosen, sources, targets, cut, strict=True)
            if not too_long and len(target) <= longest
        ]
        return most_likely(
            self.retriever(),
            memory.locate,
            self.model,
            sample,
            self.search.combiner,
            quiet,
            k_choices=CALIBRATION_K,
            floor=CALIBRATION_FLOOR,
        )

    def translate(
        self, sources: Sequence[str], on_progress: Callable[[int], None] | None = None, **settings: Any
    ) -> list[Translation]:
        """Translate sentences.

        Args:
            sources: The sentences; an empty one gives an empty translation.
            on_progress: Called with the number of sentences after each batch.
            **settings: Any field of `SearchSettings` or `DecodingSettings`; a weight of 0 is the model alone.
        """
        if isinstance(sources, str):
            raise UserError("Give a list of sentences, not one string.")
        search, decoding = self.settings(settings)
        read, cut = self.read(sources)
        results = [Translation("", source, []) for source in sources]
        full = [i for i in sorted(range(len(sources)), key=lambda i: -len(read[i].tokens)) if sources[i].strip()]
        for start in range(0, len(full), decoding.batch_size):
            batch = full[start : start + decoding.batch_size]
            outputs = self._generate([read[i] for i in batch], search, decoding)
            for i, nbest in zip(batch, outputs, strict=True):
                best, *others = [Translation(self.model.tokenizer.decode(o), sources[i], o) for o in nbest]
                best.alternatives, best.source_cut = others, cut[i]
                results[i] = best
            if on_progress is not None:
                on_progress(len(batch))
        return results

    def read(self, sources: Sequence[str]) -> tuple[list[Source], list[bool]]:
        """The sentences with their tokens, and which of them were cut to the length that the model can read."""
        whole, limit = self.model.tokenizer.encode_sources(list(sources)), self.model.max_length
        cut = [limit is not None and len(tokens) > limit for tokens in whole]
        for i, long in enumerate(cut):
            if long:
                whole[i] = [*whole[i][: limit - 1], whole[i][-1]]  # type: ignore[operator]
        return [Source(text, tokens) for text, tokens in zip(sources, whole, strict=True)], cut

    def _generate(
        self, sources: list[Source], search: SearchSettings, decoding: DecodingSettings
    ) -> list[list[list[int]]]:
        tokens = [source.tokens for source in sources]
        with self._lock:
            if search.weight == 0:
                return self.model.generate(tokens, decoding)
            combiner, outage = COMBINERS.get(search.combiner)(search), self.outage(search)
            retriever = outage.ask(lambda: self.retriever(search), search)
            if retriever is None:
                return self.model.generate(tokens, decoding)
            steer = NeighbourSteer(retriever, combiner, search, sources, self.stopwatch, outage)
            return self.model.generate(tokens, decoding, steer)

    def outage(self, search: SearchSettings) -> Outage:
        """What is known of the index that these settings search, if it is out of reach."""
        return self._outages[search.index]

    def retriever(self, search: SearchSettings | None = None) -> Retriever:
        """The retriever for these settings, opened once."""
        search = search or self.search
        # What is looked for may change from call to call; only where and how decides what has to be opened.
        plain = SearchSettings()
        varying = ("k", "temperature", "weight", "combiner", "subset_size", "sure", "on_index_failure")
        key = replace(search, **{name: getattr(plain, name) for name in varying})
        if key not in self._retrievers:
            self._retrievers[key] = RETRIEVERS.get(search.retriever).open(self.store, search, self.model)
        return self._retrievers[key]

    def settings(self, options: dict[str, Any]) -> tuple[SearchSettings, DecodingSettings]:
        """The translator's settings with these options put in their place.

        Options that name another way of searching bring the datastore's own settings for it.
        """
        reject_unknown(options, SearchSettings, DecodingSettings)
        search, named = self.search, override(self.search, {name: options.get(name) for name in WAY})
        if named != search and isinstance(self.store, Datastore):
            search = override(self.store.settings_for(named.retriever, named.combiner, named.index), self._given)
        return override(search, options), override(self.decoding, options)


def _loaded(model: str | Model, settings: ModelSettings) -> Any:
    return load_model(replace(settings, name=model)) if isinstance(model, str) else model

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from knn_seq.errors import KnnSeqError
from knn_seq.index import Neighbours
from knn_seq.models import Model, Source, TokenPair
from knn_seq.models.batching import length_batches
from knn_seq.retrieve.base import RETRIEVERS, Retriever
from knn_seq.sentences.base import SentenceSearch, sentence_search
from knn_seq.settings import BuildSettings, SearchSettings
from knn_seq.storage.translation_memory import POSITIONS, TranslationMemory
from knn_seq.subset import PaddedKeys, SentenceKeys

SUBSET_SIZE = 16
CACHED_KEYS = 1 << 15  # the sentences of a document often find the same pairs


class PairKeys(NamedTuple):
    """The entries of a sentence pair; none if it is too long for the model."""

    keys: Tensor  # (tokens, dimension)
    values: Tensor  # (tokens,) int64


@RETRIEVERS.register("memory")
class MemoryRetriever(Retriever):
    """Searches the few sentence pairs of a translation memory whose sources share most with the sentence.

    Their keys are computed when the sentence arrives, so nothing has to be built: the idea of SK-MT.

    Args:
        memory: The sentence pairs.
        search: Finds pairs by their sources.
        model: Computes the keys.
    """

    def __init__(self, memory: TranslationMemory, search: SentenceSearch, model: Model) -> None:
        self.memory, self.search, self.model = memory, search, model
        self.longest = min(model.max_length or BuildSettings.max_length, BuildSettings.max_length)
        self.on_accelerator = getattr(model, "device", torch.device("cpu")).type != "cpu"
        self._cache: OrderedDict[int, PairKeys] = OrderedDict()  # the pair used last is the last

    @classmethod
    def open(cls, store: Any, model: Model, settings: SearchSettings) -> MemoryRetriever:
        """With BM25 over the memory's sources."""
        if not isinstance(store, TranslationMemory):
            raise KnnSeqError(
                "The retriever 'memory' reads a translation memory: give one (--translation-memory), and no datastore."
            )
        search = sentence_search("bm25", model)
        search.fit([Source(source, ()) for source, _ in store.texts])
        return cls(store, search, model)

    def prepare(self, sources: Sequence[Source], settings: SearchSettings) -> PaddedKeys:
        """The keys of each sentence's pairs."""
        found = self.search.nearest(sources, settings.subset_size or SUBSET_SIZE)  # (sources, n)
        known = self._keys_of(np.unique(found[found >= 0]).tolist())
        return PaddedKeys([self._joined([number for number in row if number >= 0], known) for row in found.tolist()])

    def retrieve(
        self, queries: Tensor, sentences: Tensor, settings: SearchSettings, prepared: PaddedKeys
    ) -> Neighbours:
        """The k nearest entries of the sentence's own pairs."""
        return prepared.search(queries, sentences, settings.k)

    def _joined(self, numbers: list[int], known: dict[int, PairKeys]) -> SentenceKeys:
        pairs = [(number, known[number]) for number in numbers if len(known[number].values)]
        if not pairs:
            nothing = torch.empty(0, dtype=torch.int64)
            return SentenceKeys(torch.empty(0, self.model.dimension), nothing, nothing)
        ids = [torch.arange(len(pair.values), device=pair.values.device) + n * POSITIONS for n, pair in pairs]
        return SentenceKeys(
            torch.cat([pair.keys for _, pair in pairs]), torch.cat(ids), torch.cat([pair.values for _, pair in pairs])
        )

    def _keys_of(self, numbers: list[int]) -> dict[int, PairKeys]:
        """The keys of sentence pairs: those in the cache, and all others computed."""
        known = {number: self._cache[number] for number in numbers if number in self._cache}
        known |= self._computed([number for number in numbers if number not in known])
        for number, pair in known.items():
            self._cache[number] = pair
            self._cache.move_to_end(number)
        held = sum(max(len(pair.values), 1) for pair in self._cache.values())
        while held > CACHED_KEYS:
            held -= max(len(self._cache.popitem(last=False)[1].values), 1)
        return known

    def _computed(self, numbers: list[int]) -> dict[int, PairKeys]:
        pairs = self.memory.token_pairs(numbers, self.model.tokenizer)
        nothing = PairKeys(torch.empty(0, self.model.dimension), torch.empty(0, dtype=torch.int64))
        result = dict.fromkeys(numbers, nothing)
        fitting = [i for i, pair in enumerate(pairs) if max(map(len, pair)) <= self.longest]
        for batch in length_batches(*_lengths(pairs[i] for i in fitting), BuildSettings.batch_tokens):
            chosen = [fitting[i] for i in batch]
            keys = self.model.keys([pairs[i] for i in chosen])
            values = torch.tensor([token for i in chosen for token in pairs[i].target], device=keys.device)
            sizes = [len(pairs[i].target) for i in chosen]
            # Copies: a part of a batch would keep all of the batch in memory.
            parts = zip(chosen, torch.split(keys, sizes), torch.split(values, sizes), strict=True)
            result |= {numbers[i]: PairKeys(its_keys.clone(), its_values.clone()) for i, its_keys, its_values in parts}
        return result


def _lengths(pairs: Iterable[TokenPair]) -> tuple[Any, Any]:
    """The lengths of sources and of targets, both (pairs,)."""
    lengths = np.array([(len(pair.source), len(pair.target)) for pair in pairs], np.int64).reshape(-1, 2)
    return lengths[:, 0], lengths[:, 1]

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import DamagedFile
from knn_seq.index.neighbours import Neighbours
from knn_seq.index.recipe import REFINE_KEYS
from knn_seq.storage import DatastoreFolder, Ragged
from knn_seq.subset.codec import EXACT, KeyCodec
from knn_seq.subset.faiss_subsets import FaissSubsets
from knn_seq.subset.padded import PaddedKeys, SentenceKeys

REFINE_FACTOR = 4  # finds 98 of 100 neighbours among the candidates of the default codes
WIDE, WIDE_FACTOR = 256, 2  # beyond so many dimensions reading a key to rank it costs too much


class Subsets(Protocol):
    """The entries that each sentence of a batch is searched in."""

    def search(self, queries: Tensor, sentences: Tensor, k: int) -> Neighbours:
        """The k nearest entries of each query's own subset.

        Args:
            queries: (rows, dimension).
            sentences: For each row its sentence in the batch, (rows,).
            k: How many.
        """


class SubsetIndex:
    """The keys of a datastore, ready to be searched in subsets of its sentences.

    Args:
        keys: (entries, dimension), as they lie on the disk.
        values: The target tokens of each sentence.
        metric: "l2", "ip" or "cosine".
        recipe: The codes, see `KeyCodec`; with `Refine(keys)` behind it what they find is ranked by the keys.
        codec: The trained codec, unless the recipe is "Flat".
        codes: (entries, bytes), of the first entries, unless the recipe is "Flat": later ones are compared by their
            keys.
        coded_keys: The keys that have codes; None: all.
    """

    def __init__(
        self,
        keys: NDArray[Any],
        values: Ragged,
        metric: str = "l2",
        recipe: str = EXACT,
        codec: KeyCodec | None = None,
        codes: NDArray[np.uint8] | None = None,
        coded_keys: NDArray[Any] | None = None,
    ) -> None:
        self.keys, self.values, self.metric = keys, values, metric
        self.coded_keys = keys if coded_keys is None else coded_keys
        self.codec, self.codes = codec, codes
        self.by_keys = codec is None or recipe.endswith(REFINE_KEYS)

    @classmethod
    def open(cls, store: DatastoreFolder) -> SubsetIndex:
        """That of a datastore which was prepared for subsets."""
        return store.open_named(lambda: cls._open(store))

    @classmethod
    def _open(cls, store: DatastoreFolder) -> SubsetIndex:
        prepared = store.prepared_subset()
        recipe, metric = prepared.codes, prepared.metric
        if recipe == EXACT:
            return cls(store.keys, store.values, metric)
        coded = store.base.keys
        codec = KeyCodec(coded.shape[1], metric, recipe.removesuffix(REFINE_KEYS))
        codec.load(store.codec_path)
        if store.codes.shape != (len(coded), codec.bytes):
            raise DamagedFile(
                f"{store.codes_path} does not fit the datastore's keys: prepare it again (--sentence-search)."
            )
        return cls(store.keys, store.values, metric, recipe, codec, store.codes, coded)

    def subsets(
        self, sentences: NDArray[np.int64], device: torch.device | str = "cpu", factor: int | None = None
    ) -> Subsets:
        """The tokens of some sentences, to be searched in many steps.

        Args:
            sentences: For each sentence to translate the numbers of those to search in, (batch, n); -1 is none, and
                a number that comes twice counts once.
            device: Where the queries will be.
            factor: How many times k candidates are ranked; None: 4, for wide keys 2.
        """
        entries = [self._entries(row) for row in sentences]
        codes = self.codes
        if codes is None or all(not len(chosen) or chosen[-1] < len(codes) for chosen in entries):
            return self._subsets(entries, torch.device(device), factor)
        coded = self._subsets([chosen[chosen < len(codes)] for chosen in entries], torch.device(device), factor)
        others = TorchSubsets(self, [chosen[chosen >= len(codes)] for chosen in entries], torch.device(device), True)
        return MergedSubsets(coded, others)

    def _subsets(self, entries: list[NDArray[np.int64]], device: torch.device, factor: int | None) -> Subsets:
        if self.codec is not None and self.codes is not None and device.type == "cpu":
            keys = self.coded_keys if self.by_keys else None
            factor = factor or (REFINE_FACTOR if self.keys.shape[1] <= WIDE else WIDE_FACTOR)
            return FaissSubsets(self.codec, self.codes, keys, entries, self.values.items, factor)
        return TorchSubsets(self, entries, device)

    def _entries(self, sentences: NDArray[np.int64]) -> NDArray[np.int64]:
        """All entries of some sentences, (n,), sentence by sentence: those of one lie together."""
        return self.values.places_of(np.unique(sentences[sentences >= 0]))


class MergedSubsets:
    """Subsets of which some entries are searched by their codes and others by their keys."""

    def __init__(self, coded: Subsets, others: Subsets) -> None:
        self.coded, self.others = coded, others

    def search(self, queries: Tensor, sentences: Tensor, k: int) -> Neighbours:
        """See `Subsets.search`."""
        return self.coded.search(queries, sentences, k).merged(self.others.search(queries, sentences, k))


class TorchSubsets:
    """The subsets of a batch on any device of torch: keys, or what their codes stand for, and one product a step."""

    def __init__(
        self, index: SubsetIndex, entries: list[NDArray[np.int64]], device: torch.device, by_keys: bool = False
    ) -> None:
        self.codec = None if by_keys or index.by_keys else index.codec
        parts = []
        for chosen in entries:
            if self.codec is not None and index.codes is not None:
                keys = self.codec.decode(torch.from_numpy(np.take(index.codes, chosen, axis=0)).to(device))
            else:
                keys = torch.from_numpy(np.take(index.keys, chosen, axis=0)).to(device)
            values = torch.from_numpy(np.take(index.values.items, chosen).astype(np.int64))
            parts.append(SentenceKeys(keys, torch.from_numpy(chosen).to(device), values.to(device)))
        # What codes of keys of length one stand for is about of length one: distances are to that itself.
        self.halved = self.codec is not None and index.metric == "cosine"
        self.padded = PaddedKeys(parts, "l2" if self.halved else index.metric)

    def search(self, queries: Tensor, sentences: Tensor, k: int) -> Neighbours:
        """See `Subsets.search`."""
        queries = queries.float() if self.codec is None else self.codec.transform(queries.float())
        found = self.padded.search(queries, sentences, k)
        return replace(found, distances=found.distances / 2) if self.halved else found

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from knn_seq.storage import DatastoreFolder
from knn_seq.storage.pairs import hashed


class Lookup:
    """Finds the sentence pairs of a datastore, those that are not deleted, by what they are called.

    Args:
        store: The datastore.
    """

    def __init__(self, store: DatastoreFolder) -> None:
        self.store = store
        self._live = np.ones(sum(map(len, store.segments)), bool)
        self._live[store.deleted] = False

    def by_id(self, ids: Collection[str]) -> dict[str, list[int]]:
        """The numbers of the pairs with these ids, by id; one that no pair has is left out."""
        return self._found(ids, self._id_hashes(), lambda number: self.store.pairs[number].id)

    def by_source(self, sources: Collection[str]) -> dict[str, list[int]]:
        """The numbers of the pairs with exactly these sources, by source; one that no pair has is left out."""
        hashes = np.concatenate([segment.pairs.source_hashes for segment in self.store.segments])
        return self._found(sources, hashes, lambda number: self.store.texts[number][0])

    def by_corpus(self, name: str) -> list[int]:
        """The numbers of all pairs that came from the corpus of that name."""
        starts = np.cumsum([0, *map(len, self.store.segments)]).tolist()
        found = [s.pairs.of_corpus(name) + start for start, s in zip(starts, self.store.segments, strict=False)]
        numbers = np.concatenate(found)
        return [int(number) for number in numbers[self._live[numbers]]]

    def live_id_hashes(self, without: NDArray[np.int64]) -> NDArray[np.uint64]:
        """A hash of each id that is in use, but for those of some pairs."""
        live = self._live.copy()
        live[without] = False
        return self._id_hashes()[live]

    def _id_hashes(self) -> NDArray[np.uint64]:
        return np.concatenate([segment.pairs.id_hashes for segment in self.store.segments])

    def _found(
        self, wanted: Collection[str], hashes: NDArray[np.uint64], text: Callable[[int], str]
    ) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        sought = np.fromiter(map(hashed, wanted), np.uint64, len(wanted))
        names = set(wanted)
        for number in np.flatnonzero(np.isin(hashes, sought, kind="sort") & self._live).tolist():
            name = text(number)
            if name in names:  # two texts may have the same hash
                found.setdefault(name, []).append(number)
        return found

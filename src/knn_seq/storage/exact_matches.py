"""Sentences that are in a store as they are: the translation that people wrote for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class ExactMatches:
    """Finds stored targets by their complete source.  The table is made when it is first asked.

    Args:
        texts: Source and target of each sentence pair: of a datastore, or of a translation memory.
        deleted: The numbers of those that do not count.
    """

    def __init__(self, texts: Sequence[tuple[str, str]], deleted: Iterable[int] = ()) -> None:
        self.texts, self.deleted = texts, frozenset(map(int, deleted))
        self._hashes: NDArray[np.int64] = np.empty(0, np.int64)  # of the sources, sorted
        self._numbers: NDArray[np.int64] = np.empty(0, np.int64)  # which source each is of

    @classmethod
    def current(
        cls, known: ExactMatches | None, texts: Sequence[tuple[str, str]], deleted: Collection[int]
    ) -> ExactMatches:
        """Those that are known, if they are of these texts; else new ones."""
        same = known is not None and known.texts is texts and len(known.deleted) == len(deleted)
        return known if known is not None and same else cls(texts, deleted)

    def target(self, source: str) -> str | None:
        """The most frequent target of a source, of equally frequent ones the one stored last; None if there is none."""
        if len(self._hashes) != len(self.texts):
            hashes = np.fromiter((hash(stored) for stored, _ in self.texts), np.int64, len(self.texts))
            self._numbers = np.argsort(hashes, kind="stable")
            self._hashes = hashes[self._numbers]
        wanted = np.int64(hash(source))
        first, last = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        pairs = [self.texts[number] for number in self._numbers[first:last].tolist() if number not in self.deleted]
        targets = [target for stored, target in pairs if stored == source]
        counts = Counter(targets)
        return max(reversed(targets), key=lambda target: counts[target], default=None)

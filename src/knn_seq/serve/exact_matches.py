"""Sources that a memory has as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from knn_seq.datastore import Datastore
from knn_seq.live.lookup import Lookup


class ExactMatches:
    """The memory's own translations of complete sources, as it is now.

    Args:
        path: The datastore's folder.
    """

    def __init__(self, path: Path) -> None:
        self._store = Datastore(path).snapshot()
        self._lookup = Lookup(self._store)

    def targets(self, sources: Collection[str]) -> dict[str, str]:
        """The targets of those sources that the memory has: the most frequent one, or the latest of such."""
        if self._store.changed():
            self._store = Datastore(self._store.path).snapshot()
            self._lookup = Lookup(self._store)
        found = {}
        for source, numbers in self._lookup.by_source(set(sources)).items():
            targets = [self._store.texts[number][1] for number in numbers]
            counts = Counter(targets)
            found[source] = max(reversed(targets), key=lambda target: counts[target])
        return found

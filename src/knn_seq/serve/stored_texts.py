"""What a datastore has as text, as it is on the disk now: translations of complete sources, and the glossary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from knn_seq.datastore import Datastore
from knn_seq.glossary import Glossary, stored_glossary
from knn_seq.live.lookup import Lookup


class ExactMatches:
    """The memory's own translations of complete sources.

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


class CurrentGlossary:
    """The glossary that binds translations.

    Args:
        path: The datastore's folder.
    """

    def __init__(self, path: Path) -> None:
        self._store = Datastore(path)
        self._file: str | None = None
        self._glossary: Glossary | None = None

    def read(self) -> Glossary | None:
        """The glossary; it is read again only if it was replaced."""
        if self._store.changed():
            self._store.reload()
        info = self._store.manifest.glossary
        file = None if info is None else info.file
        if file != self._file:
            self._glossary, self._file = stored_glossary(self._store), file
        return self._glossary

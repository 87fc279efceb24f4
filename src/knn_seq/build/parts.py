"""Parts of an index, filled by workers and merged later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.build.engine import Work, Worker
from knn_seq.build.engine.base import LOCK_TIMEOUT
from knn_seq.index import INDEXES, SearchIndex
from knn_seq.index.base import DESCRIPTION
from knn_seq.storage import FolderLock
from knn_seq.storage.keys import StoredRows


@dataclass(frozen=True)
class IndexPart(Work):
    """Some entries added to a copy of a trained index.

    Args:
        kind: The index's name in the registry.
        trained: The folder of the trained, empty index.
        folder: Where the part is saved.
        rows: All keys.
        entries: Those of the part.
        chunk: Keys that are converted at a time.
    """

    kind: str
    trained: Path
    folder: Path
    rows: StoredRows
    entries: range
    chunk: int

    @property
    def size(self) -> int:
        """Keys."""
        return len(self.entries)

    @property
    def finished(self) -> bool:
        """Whether it was saved."""
        return (self.folder / DESCRIPTION).exists()

    def done(self) -> int:
        """See `Work.done`."""
        return self.size if self.finished else 0

    def run(self, worker: Worker) -> None:
        """See `Work.run`."""
        done = 0

        def on_progress(count: int) -> None:
            nonlocal done
            done += count
            worker.report(done)

        with FolderLock(self.folder, LOCK_TIMEOUT):
            if not self.finished:
                part = INDEXES.get(self.kind).load(self.trained, writable=True).part()
                add_rows(part, self.rows.open(), self.entries, self.chunk, on_progress)
                part.save(self.folder)
        worker.report(self.size)


def add_rows(
    index: SearchIndex, keys: NDArray[Any], rows: range, chunk: int, on_progress: Callable[[int], None]
) -> None:
    """Add rows of keys, (entries, dimension), under their own numbers, a chunk at a time."""
    for first in range(rows.start, rows.stop, chunk):
        last = min(first + chunk, rows.stop)
        index.add(keys[first:last], np.arange(first, last))
        on_progress(last - first)

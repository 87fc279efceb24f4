"""Arrays with a row for each entry, written in one pass that can be resumed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from knn_seq.storage import KeyWriter, open_keys


class Column(NamedTuple):
    """The shape of an array."""

    width: int
    dtype: DTypeLike


class ColumnWriter:
    """Writes arrays with a row for each entry, a file each, with a checkpoint now and then.

    Args:
        folder: Where the files are.
        columns: The arrays by name.
        entries: The number of rows.
        identity: What they depend on: those of another one are thrown away.
        checkpoint_seconds: The most work that a kill may cost.
    """

    def __init__(
        self,
        folder: Path,
        columns: Mapping[str, Column],
        entries: int,
        identity: Mapping[str, Any],
        checkpoint_seconds: float,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._seconds, self._last = folder, checkpoint_seconds, time.monotonic()
        self._writers: dict[str, KeyWriter] = {}
        progress: list[int | None] = []
        for name, column in columns.items():
            writer, stored = KeyWriter.open_or_create(
                _path(folder, name), (entries, column.width), column.dtype, identity, name
            )
            self._writers[name] = writer
            progress.append(None if writer.finished else (stored or {"done": 0})["done"])
        unfinished = [done for done in progress if done is not None]
        self.finished = not unfinished
        self.done = min(unfinished, default=0)  # in the units of the caller

    def write(self, start: int, **rows: NDArray[Any]) -> None:
        """Write rows of each array, (n, width), from row `start` on."""
        for name, part in rows.items():
            self._writers[name].write(start, part)

    def advance(self, count: int = 1) -> None:
        """Say that `count` more units are written."""
        self.done += count
        if time.monotonic() - self._last >= self._seconds:
            for writer in self._writers.values():
                writer.checkpoint({"done": self.done})
            self._last = time.monotonic()

    def finish(self) -> None:
        """Give the files their final names."""
        for writer in self._writers.values():
            writer.finish()
        self.finished = True

    def __enter__(self) -> ColumnWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()


def open_column(folder: Path, name: str) -> NDArray[Any]:
    """An array that was written completely, (entries, width), as a memory map."""
    return open_keys(_path(folder, name), name)


def no_column(entries: int, dtype: DTypeLike) -> NDArray[Any]:
    """An array that nobody asked for, (entries, 0)."""
    return np.empty((entries, 0), dtype)


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.h5"

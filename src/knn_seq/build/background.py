"""Writing while the next batch is computed."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = tuple[NDArray[np.int64], list[int], NDArray[Any]]
"""Where the rows of each sentence go, how many they are, and all of them."""


class RowWriter(Protocol):
    """Writes rows to their place: a `KeyWriter` or a `ShardWriter`."""

    def write(self, start: int, rows: NDArray[Any], /) -> None:
        """Write rows, (n, dimension), from row `start` on."""


class BackgroundWriter:
    """Writes batches of rows in a thread of its own, with a checkpoint now and then.

    Args:
        writers: Where to; a batch has rows for each of them.
        progress: Batches and rows done before; rows are counted for the first of the writers.
        checkpoint: Brings what was written to the disk and stores the progress it is given.
        checkpoint_seconds: The most work that a kill may cost.
    """

    def __init__(
        self,
        writers: Sequence[RowWriter],
        progress: Mapping[str, int],
        checkpoint: Callable[[Mapping[str, int]], None],
        checkpoint_seconds: float,
    ) -> None:
        self.progress = dict(progress)
        self._writers, self._checkpoint, self._checkpoint_seconds = writers, checkpoint, checkpoint_seconds
        self._queue: queue.Queue[tuple[Rows, ...] | None] = queue.Queue(maxsize=4)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="key writer", daemon=True)

    def put(self, *batch: Rows) -> None:
        """Write a batch, in the order of the writers."""
        self._queue.put(batch)
        if self._error is not None:
            raise self._error

    def __enter__(self) -> BackgroundWriter:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._queue.put(None)
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error
        if error is not None and self._error is None:
            self._checkpoint(self.progress)  # so that what was computed is not computed again

    def _run(self) -> None:
        last = time.monotonic()
        while (batch := self._queue.get()) is not None:
            if self._error is not None:
                continue  # so that `put` never waits for a thread that has given up
            try:
                self._write(batch)
                if time.monotonic() - last >= self._checkpoint_seconds:
                    self._checkpoint(self.progress)
                    last = time.monotonic()
            except BaseException as error:
                self._error = error

    def _write(self, batch: tuple[Rows, ...]) -> None:
        for writer, (places, lengths, rows) in zip(self._writers, batch, strict=True):
            start = 0
            for place, length in zip(places.tolist(), lengths, strict=True):
                writer.write(place, rows[start : start + length])
                start += length
        self.progress["batches"] += 1
        self.progress["tokens"] += len(batch[0][2])

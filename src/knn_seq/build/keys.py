"""The second step: the key of every target token."""

from __future__ import annotations

import queue
import threading
import time
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.build.batches import plan_batches
from knn_seq.models import Model, TokenPair
from knn_seq.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter


def store_keys(
    folder: DatastoreFolder, model: Model, settings: BuildSettings, identity: dict[str, Any], quiet: bool
) -> None:
    """Compute keys batch by batch and write each while the next is computed; goes on from the last checkpoint."""
    sources, targets = folder.sources, folder.values
    writer, done = KeyWriter.open_or_create(
        folder.keys_path, (len(targets.items), model.dimension), settings.key_dtype, identity
    )
    dtype = getattr(torch, settings.key_dtype)
    with writer, Progress("keys", len(targets.items), "tokens", (done or {}).get("tokens", 0), quiet) as progress:
        if not writer.finished:
            with BackgroundWriter(
                writer, done or {"batches": 0, "tokens": 0}, settings.checkpoint_seconds
            ) as background:
                batches = plan_batches(sources, targets, settings.batch_tokens)
                for batch in islice(batches, background.progress["batches"], None):
                    pairs = [TokenPair(sources[i].tolist(), targets[i].tolist()) for i in batch]
                    keys = model.keys(pairs).to(dtype).cpu().numpy()
                    background.put(targets.offsets[batch], [len(pair.target) for pair in pairs], keys)
                    progress.update(len(keys))
        writer.finish()


class BackgroundWriter:
    """Writes batches of keys in a thread of its own, with a checkpoint now and then.

    Args:
        writer: Where to.
        progress: Batches and tokens done before.
        checkpoint_seconds: How much work at most a kill may cost.
    """

    def __init__(self, writer: KeyWriter, progress: dict[str, int], checkpoint_seconds: float) -> None:
        self.progress = dict(progress)
        self._writer, self._checkpoint_seconds = writer, checkpoint_seconds
        self._queue: queue.Queue[tuple[NDArray[Any], list[int], NDArray[Any]] | None] = queue.Queue(maxsize=4)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="key writer", daemon=True)

    def put(self, rows: NDArray[np.int64], lengths: list[int], keys: NDArray[Any]) -> None:
        """Write the keys of a batch: those of its sentence i go from row rows[i] on, lengths[i] of them."""
        self._queue.put((rows, lengths, keys))
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

    def _run(self) -> None:
        last = time.monotonic()
        while (item := self._queue.get()) is not None:
            if self._error is not None:
                continue  # so that `put` never waits for a thread that has given up
            try:
                self._write(*item)
                if time.monotonic() - last >= self._checkpoint_seconds:
                    self._writer.checkpoint(self.progress)
                    last = time.monotonic()
            except BaseException as error:
                self._error = error

    def _write(self, rows: NDArray[np.int64], lengths: list[int], keys: NDArray[Any]) -> None:
        start = 0
        for row, length in zip(rows.tolist(), lengths, strict=True):
            self._writer.write(row, keys[start : start + length])
            start += length
        self.progress["batches"] += 1
        self.progress["tokens"] += len(keys)

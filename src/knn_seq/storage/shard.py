"""A file of rows that several processes write at the same time, each its own shard of them."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from knn_seq.storage.flat import FlatWriter, create_flat, open_flat, read_extents
from knn_seq.storage.keys import KEYS, KeyWriter

BORDER_BYTES = 1 << 20  # at each end of a shard; no network file system moves larger pieces


class ShardWriter:
    """Writes one shard of a file that is not finished.

    A network file system moves pages: where two writers share one, what one of them wrote may be lost.  So the rows at
    both ends of the shard are written a second time, into a file of their own, and `restore_borders` writes them to
    their place again when all shards are written.

    Args:
        path: The final file; `KeyWriter.open_or_create` has created it.
        rows: The shard's.
        borders: The file for the rows at both ends.
        resume: Whether some rows were written before, so that `borders` is there.
        name: What the rows are called in the file.
    """

    def __init__(self, path: Path, rows: range, borders: Path, resume: bool, name: str = KEYS) -> None:
        self._writer = KeyWriter(path, name=name)
        extent = self._writer.extent
        count = max(BORDER_BYTES // max(extent.row_bytes, 1), 1)
        head, tail = rows[:count], rows[count:][-count:]
        self._borders = {"head": head, "tail": tail}
        self._inner = range(head.stop, tail.start) if tail else range(0)
        if not resume:
            shapes = {end: ((len(part), *extent.shape[1:]), extent.dtype) for end, part in self._borders.items()}
            create_flat(borders, shapes, {"start": rows.start, "stop": rows.stop})
        self._border_writer = FlatWriter(borders)

    def write(self, start: int, rows: NDArray[Any]) -> None:
        """Write rows, (n, dimension), from row `start` of the file on."""
        self._writer.write(start, rows)
        stop = start + len(rows)
        if self._inner.start <= start and stop <= self._inner.stop:
            return
        for end, border in self._borders.items():
            first, last = max(start, border.start), min(stop, border.stop)
            if first < last:
                self._border_writer.write(end, first - border.start, rows[first - start : last - start])

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        self._writer.sync()
        self._border_writer.sync()

    def close(self) -> None:
        """Close the files."""
        self._writer.close()
        self._border_writer.close()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def restore_borders(borders: Path, writer: KeyWriter) -> None:
    """Write the rows at the ends of a shard again, now that nobody else writes."""
    rows, attributes = open_flat(borders), read_extents(borders)[1]
    for name, start in (("head", attributes["start"]), ("tail", attributes["stop"] - len(rows["tail"]))):
        writer.write(int(start), rows[name])

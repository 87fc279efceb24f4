"""Sequences of different lengths: all their items in a row, and the offsets at which each begins."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from knn_seq.errors import DamagedFile
from knn_seq.storage.atomic import PARTIAL, disk_errors, partial_of, publish, sync_file
from knn_seq.storage.flat import FlatWriter, create_flat, open_flat, read_extents

if TYPE_CHECKING:
    from typing_extensions import Self

BUFFER_BYTES = 1 << 20
COPY_ITEMS = 1 << 20


class Ragged(Sequence[NDArray[Any]]):
    """Sequences to read.

    Args:
        items: The items of all sequences, (items,).
        offsets: Sequence i is items[offsets[i]:offsets[i + 1]], (sequences + 1,) int64.
    """

    def __init__(self, items: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        self.items, self.offsets = items, offsets

    @classmethod
    def open(cls, path: Path, name: str = "") -> Ragged:
        """The array of that name in a file, memory-mapped."""
        return cls.open_all(path, (name,))[name]

    @classmethod
    def open_all(cls, path: Path, names: Sequence[str]) -> dict[str, Ragged]:
        """The arrays of these names in a file, memory-mapped."""
        arrays, opened = open_flat(path), {}
        for name in names:
            items, offsets = arrays.get(_dataset(name, "items")), arrays.get(_dataset(name, "offsets"))
            if items is None or offsets is None or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(items):
                raise DamagedFile(f"{path} is damaged: its offsets do not fit its items.")
            opened[name] = cls(items, offsets)
        return opened

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"There is no sequence {index} among {len(self)}.")
        index %= len(self)
        return self.items[self.offsets[index] : self.offsets[index + 1]]

    def lengths(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """The lengths of the sequences from `start` to before `stop`, (sequences,) int64."""
        stop = len(self) if stop is None else min(stop, len(self))
        return np.diff(self.offsets[start : stop + 1])

    def row_of(self, items: ArrayLike) -> NDArray[np.int64]:
        """For each place among the items the sequence that it lies in, same shape int64; -1 stays -1."""
        return np.searchsorted(self.offsets, np.asarray(items, np.int64), side="right") - 1

    def places_in_rows(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each place among the items the place in its sequence."""
        return items - self.offsets[self.row_of(items)]

    def places_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of all items of some sequences, (n,), sequence by sequence."""
        starts, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        before = np.cumsum(lengths) - lengths
        return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


class RaggedWriter:
    """Writes sequences to raw files beside the final one, so that a killed build can resume.

    Args:
        path: The final file, which `finish` makes.
        dtypes: The dtype of the items of each array that the file is to hold, by name; {"": dtype} for the only one.
        lengths: What `checkpoint` returned last, to resume from: what was appended afterwards is dropped.  If the final
            file was made already, the writer is `finished`.  None: start from the beginning.
    """

    def __init__(
        self, path: Path, dtypes: Mapping[str, DTypeLike], lengths: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self.path = path
        self._dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        self._lengths = {name: list(lengths[name]) if lengths else [0, 0] for name in dtypes}
        self._files: dict[tuple[str, str], _AppendFile] = {}
        self.finished = lengths is not None and self._is_finished()
        if not self.finished:
            for (name, kind), size in self._sizes().items():
                self._files[name, kind] = _AppendFile(self._partial(name, kind), size)

    def extend(self, *columns: tuple[ArrayLike, ArrayLike]) -> None:
        """Append sequences to each array, in the order of their names, given as all their items and their lengths."""
        for (name, dtype), (items, lengths) in zip(self._dtypes.items(), columns, strict=True):
            flat, sizes = np.ascontiguousarray(items, dtype), np.asarray(lengths, np.int64)
            sequences, count = self._lengths[name]
            ends = count + np.cumsum(sizes)
            if len(flat) != sizes.sum():
                raise ValueError(f"The lengths of '{name}' add up to {sizes.sum()}, but there are {len(flat)} items.")
            self._files[name, "items"].append(flat)
            self._files[name, "offsets"].append(ends)
            self._lengths[name] = [sequences + len(sizes), count + len(flat)]

    def checkpoint(self) -> dict[str, list[int]]:
        """Bring all to the disk and return how far it goes: sequences and items of each array."""
        for file in self._files.values():
            file.sync()
        return {name: list(lengths) for name, lengths in self._lengths.items()}

    def finish(self) -> None:
        """Make the final file and remove the raw ones."""
        if not self.finished:
            self.checkpoint()
            self._publish()
            self.finished = True
        self.close()
        for name, kind in self._sizes():
            self._partial(name, kind).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; what came after the last checkpoint may be lost."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _publish(self) -> None:
        shapes: dict[str, tuple[tuple[int, ...], DTypeLike]] = {}
        for name, (sequences, items) in self._lengths.items():
            shapes[_dataset(name, "items")] = ((items,), self._dtypes[name])
            shapes[_dataset(name, "offsets")] = ((sequences + 1,), np.int64)
        partial = partial_of(self.path)
        create_flat(partial, shapes)
        with FlatWriter(partial) as writer:
            for name, dtype in self._dtypes.items():
                for start, chunk in _chunks(self._partial(name, "items"), dtype):
                    writer.write(_dataset(name, "items"), start, chunk)
                writer.write(_dataset(name, "offsets"), 0, [0])
                for start, chunk in _chunks(self._partial(name, "offsets"), np.dtype(np.int64)):
                    writer.write(_dataset(name, "offsets"), start + 1, chunk)
        publish(partial, self.path)

    def _sizes(self) -> dict[tuple[str, str], int]:
        sizes = {}
        for name, (sequences, items) in self._lengths.items():
            sizes[name, "items"] = items * self._dtypes[name].itemsize
            sizes[name, "offsets"] = sequences * np.dtype(np.int64).itemsize
        return sizes

    def _partial(self, name: str, kind: str) -> Path:
        return self.path.with_name(".".join(filter(None, (self.path.name, name, kind))) + PARTIAL)

    def _is_finished(self) -> bool:
        """Whether the build was killed while `finish` removed the raw files, after the final one had its name."""
        if all(self._partial(name, kind).exists() for name, kind in self._sizes()) or not self.path.exists():
            return False
        extents = read_extents(self.path)[0]
        return all(
            extents[_dataset(name, "items")].shape == (items,)
            and extents[_dataset(name, "offsets")].shape == (sequences + 1,)
            for name, (sequences, items) in self._lengths.items()
        )


class _AppendFile:
    """A raw file that grows; it is cut to `size` bytes first."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        if os.fstat(self._handle).st_size < size:
            os.close(self._handle)
            raise DamagedFile(f"{path} is damaged (shorter than it was): delete the folder and build again.")
        os.ftruncate(self._handle, size)
        os.lseek(self._handle, size, os.SEEK_SET)
        self._buffer = bytearray()

    def append(self, array: NDArray[Any]) -> None:
        raw: Any = array.view(np.uint8)
        self._buffer += memoryview(raw)
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def sync(self) -> None:
        self._flush()
        with disk_errors(self.path):
            sync_file(self._handle)

    def close(self) -> None:
        os.close(self._handle)

    def _flush(self) -> None:
        with disk_errors(self.path), memoryview(self._buffer) as left:
            done = 0
            while done < len(left):
                done += os.write(self._handle, left[done:])
        self._buffer.clear()


def _chunks(path: Path, dtype: np.dtype[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    with open(path, "rb") as file:
        start = 0
        while data := file.read(COPY_ITEMS * dtype.itemsize):
            chunk = np.frombuffer(data, dtype)
            yield start, chunk
            start += len(chunk)


def _dataset(name: str, kind: str) -> str:
    return f"{name}/{kind}" if name else kind

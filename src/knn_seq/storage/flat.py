"""HDF5 files of contiguous datasets, written with plain writes and read through memory maps.

A contiguous dataset has one place in its file, so HDF5 is needed only to find it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from knn_seq.errors import DamagedFile, NotFound
from knn_seq.runtime.memory import MemoryNeed, require_memory
from knn_seq.storage.atomic import disk_errors, sync_file

ALIGNMENT = 64  # bytes: a cache line
READ_BYTES = 1 << 16  # up to here a dataset is read: a map would keep its file open, and many small ones are too many


class Extent(NamedTuple):
    """Where in its file a dataset lies."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """The first byte behind the dataset."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def create_flat(
    path: Path, datasets: Mapping[str, tuple[tuple[int, ...], DTypeLike]], attributes: Mapping[str, Any] | None = None
) -> None:
    """Make a file of contiguous, empty datasets, and reserve its space on the disk.

    Args:
        path: The file; one that is there is replaced.
        datasets: Shape and dtype by name; a name with a slash lies in a group.
        attributes: Attributes of the file.
    """
    size = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in datasets.values())
    with disk_errors(path):
        # Reserved before, so that a full disk shows here as it is and not somewhere inside HDF5.
        with open(path, "wb") as file:
            _reserve(file.fileno(), size)
        with h5py.File(path, "w", locking=False, alignment_threshold=1, alignment_interval=ALIGNMENT) as file:
            for name, (shape, dtype) in datasets.items():
                _create_dataset(file, name, shape, np.dtype(dtype))
            file.attrs.update(attributes or {})
        with open(path, "r+b") as file:
            _reserve(file.fileno(), os.fstat(file.fileno()).st_size)


def read_extents(path: Path) -> tuple[dict[str, Extent], dict[str, Any]]:
    """The extents of a file's datasets by name, and the file's attributes."""
    extents: dict[str, Extent] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.chunks is not None or (item.size and item.id.get_offset() is None) or item.dtype.hasobject:
                raise ValueError(f"'{name}' is not a contiguous dataset of numbers")
            extents[name] = Extent(item.id.get_offset() or 0, tuple(item.shape), item.dtype)

    try:
        size = path.stat().st_size
        # Through a Python file: HDF5's own driver refuses a file that someone holds open with other lock settings.
        with open(path, "rb") as raw, h5py.File(raw, "r") as file:
            file.visititems(visit)
            attributes = dict(file.attrs)
        if any(extent.end > size for extent in extents.values()):
            raise ValueError("it is cut short")
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}.") from error
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} is damaged, or not a file of this program: {error}.") from error
    return extents, attributes


def open_flat(path: Path) -> dict[str, NDArray[Any]]:
    """The datasets of a file by name, as read-only memory maps."""
    return {name: _map(path, extent) for name, extent in read_extents(path)[0].items()}


class FlatWriter:
    """Writes rows of the datasets of a file made by `create_flat`; several threads or processes may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.extents, self.attributes = read_extents(path)
        self._handle = os.open(path, os.O_RDWR)

    def write(self, name: str, start: int, rows: ArrayLike) -> None:
        """Write rows of a dataset from row `start` on, in the dataset's dtype."""
        extent = self.extents[name]
        array = np.ascontiguousarray(rows, dtype=extent.dtype)
        if array.shape[1:] != extent.shape[1:] or start < 0 or start + len(array) > extent.shape[0]:
            raise ValueError(f"Rows {array.shape} at {start} do not fit into '{name}' {extent.shape}.")
        with disk_errors(self.path):
            place = extent.offset + start * extent.row_bytes
            raw: Any = array.reshape(-1).view(np.uint8)
            left = memoryview(raw)
            while left:
                written = os.pwrite(self._handle, left, place)
                left, place = left[written:], place + written

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        with disk_errors(self.path):
            sync_file(self._handle)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> FlatWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _create_dataset(file: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.CONTIGUOUS)
    layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    kind, space = h5py.h5t.py_create(dtype, logical=True), h5py.h5s.create_simple(shape)
    h5py.h5d.create(file.id, name.encode(), kind, space, layout, links)


def _reserve(handle: int, size: int) -> None:
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)


def _map(path: Path, extent: Extent) -> NDArray[Any]:
    if not math.prod(extent.shape):
        return np.empty(extent.shape, extent.dtype)
    if extent.end - extent.offset <= READ_BYTES:
        with open(path, "rb") as file:
            rows = np.fromfile(file, extent.dtype, math.prod(extent.shape), offset=extent.offset).reshape(extent.shape)
        rows.flags.writeable = False
        return rows
    require_memory(MemoryNeed(0, extent.row_bytes * extent.shape[0]), f"The file {path}")
    # A plain array over the map: every slice of np.memmap itself pays for its attributes.
    return np.asarray(np.memmap(path, extent.dtype, "r", extent.offset, extent.shape))

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from knn_seq.errors import DamagedFile, InvalidSetting, NotFound
from knn_seq.storage.atomic import partial_of, publish, read_json, write_json
from knn_seq.storage.flat import Extent, FlatWriter, create_flat, open_flat

KEYS = "keys"


def open_keys(path: Path, name: str = KEYS) -> NDArray[Any]:
    """The keys of a datastore, (entries, dimension), or other rows of that name, as a read-only memory map."""
    keys = open_flat(path).get(name)
    if keys is None or keys.ndim != 2:
        raise DamagedFile(f"{path} holds no {name}.")
    return keys


class StoredRows(NamedTuple):
    """Where rows are stored, for processes that open them themselves."""

    path: Path
    name: str = KEYS

    def open(self) -> NDArray[Any]:
        """The rows, (n, dimension), as a read-only memory map."""
        return open_keys(self.path, self.name)


class KeyWriter:
    """Writes keys in any order into a file of known shape, so that a killed build can resume.

    Sentence vectors and codes are written the same way, under their own names.
    """

    def __init__(self, path: Path, finished: bool = False, name: str = KEYS) -> None:
        self.path, self.finished, self.name = path, finished, name
        self._writer = FlatWriter(path if finished else partial_of(path))

    @classmethod
    def open_or_create(
        cls,
        path: Path,
        shape: tuple[int, int],
        dtype: DTypeLike,
        identity: Mapping[str, Any] | None = None,
        name: str = KEYS,
        shards: Path | None = None,
    ) -> tuple[KeyWriter, dict[str, Any] | None]:
        """Resume a file that fits, or create a new one.

        Args:
            path: The final file, which `finish` makes.
            shape: Entries and dimension.
            dtype: float16 or float32, of codes uint8.
            identity: What the keys depend on (model, corpus); a file with another one does not fit.
            name: What the rows are called in the file.
            shards: The folder with the progress of several writers of the file; deleted when a new file is created.

        Returns:
            The writer, and what the last `checkpoint` stored, or None.  If the final file is there already, the writer
            is `finished` and has nothing to do but `finish`.
        """
        mark = json.dumps(identity or {}, sort_keys=True)
        for finished in (True, False):
            writer = cls._open_fitting(path, shape, np.dtype(dtype), mark, finished, name)
            if writer is not None:
                return writer, writer.progress()
        if shards is not None and shards.exists():
            shutil.rmtree(shards)
        progress_of(path).unlink(missing_ok=True)  # first, or a kill would leave it beside a new file
        create_flat(partial_of(path), {name: (shape, dtype)}, {"identity": mark})
        return cls(path, name=name), None

    @classmethod
    def open_unfinished(
        cls, path: Path, shape: tuple[int, int], dtype: DTypeLike, identity: Mapping[str, Any], name: str = KEYS
    ) -> KeyWriter | None:
        """Resume an unfinished file that fits; None if there is none."""
        return cls._open_fitting(path, shape, np.dtype(dtype), json.dumps(identity, sort_keys=True), False, name)

    def write(self, start: int, keys: ArrayLike) -> None:
        """Write keys, (rows, dimension), from row `start` on.

        Best given in the file's dtype: numpy converts to float16 fifteen times more slowly than torch.
        """
        dtype = self._writer.extents[self.name].dtype
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(keys, dtype)
        if not _all_finite(rows):
            raise InvalidSetting(
                f"The model gives keys that {dtype} cannot hold: build with float32 keys, or check the model."
            )
        self._writer.write(self.name, start, rows)

    @property
    def extent(self) -> Extent:
        """Where in the file the rows lie."""
        return self._writer.extents[self.name]

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        self._writer.sync()

    def checkpoint(self, progress: Mapping[str, Any]) -> None:
        """Bring all keys to the disk, and store the progress in the caller's own terms."""
        self.sync()
        write_json(progress_of(self.path), progress)

    def finish(self) -> None:
        """Give the file its final name."""
        self.close()
        if not self.finished:
            publish(partial_of(self.path), self.path)
            self.finished = True
        progress_of(self.path).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; keys written after the last checkpoint will be written again."""
        self._writer.close()

    def __enter__(self) -> KeyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @classmethod
    def _open_fitting(
        cls, path: Path, shape: tuple[int, int], dtype: np.dtype[Any], mark: str, finished: bool, name: str
    ) -> KeyWriter | None:
        try:
            writer = cls(path, finished, name)
        except (NotFound, DamagedFile):  # or a kill interrupted its creation
            return None
        extent = writer._writer.extents.get(name)
        if (
            extent
            and (extent.shape, extent.dtype) == (shape, dtype)
            and writer._writer.attributes.get("identity") == mark
        ):
            return writer
        writer.close()
        return None

    def progress(self) -> dict[str, Any] | None:
        """What the last `checkpoint` stored, if there was one."""
        path = progress_of(self.path)
        return dict(read_json(path)) if path.exists() else None


def _all_finite(rows: NDArray[Any]) -> bool:
    if rows.dtype != np.float16:
        return bool(np.isfinite(rows).all())
    # By the bits of the exponent: numpy's isfinite is twenty times slower in half precision.
    return not rows.size or bool((rows.view(np.uint16) & 0x7FFF).max() < 0x7C00)


def progress_of(path: Path) -> Path:
    """Where the progress of an unfinished file is stored."""
    return path.with_name(f"{path.stem}.progress.json")

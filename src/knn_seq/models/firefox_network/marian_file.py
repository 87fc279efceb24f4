"""Reader of Marian's binary model files, the format that Firefox's translation models are shipped in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import DamagedFile

_VERSION = 1
_FLOAT32 = 0x404
_INT8 = 0x4101
_OPTIONS = "special:model.yml"


@dataclass(frozen=True)
class MarianFile:
    """What a Marian binary file holds.

    Attributes:
        path: Where it was read from.
        tensors: Float32 arrays by Marian's names; a matrix has shape (inputs, outputs), a vector (1, size).
        options: The scalar options of the training configuration in the file, as text ("dec-cell": "ssru").
        scales: What a 1 stood for in each tensor that has 8 bits in the file.
    """

    path: Path
    tensors: dict[str, NDArray[np.float32]]
    options: dict[str, str]
    scales: dict[str, float] = field(default_factory=dict)


def read_marian_file(path: Path) -> MarianFile:
    """Read a complete file; 8-bit tensors are de-quantized, and scales of 8-bit activations are left out."""
    try:
        cursor = _Cursor(path.read_bytes())
    except OSError as error:
        raise DamagedFile(f"Cannot read the model file {path}: {error.strerror}.") from error
    tensors: dict[str, NDArray[np.float32]] = {}
    options: dict[str, str] = {}
    scales: dict[str, float] = {}
    try:
        version, count = cursor.integers(2)
        if version != _VERSION:
            raise DamagedFile(f"{path} is not a Marian binary model file of version {_VERSION}: give another file.")
        heads = [cursor.integers(4) for _ in range(count)]  # length of the name, type, dimensions, bytes of data
        names = [bytes(cursor.take(head[0])).rstrip(b"\0").decode() for head in heads]
        shapes = [tuple(cursor.integers(head[2], "<i4")) for head in heads]
        cursor.take(*cursor.integers(1))  # aligns the data
        for name, (_, kind, _, size), shape in zip(names, heads, shapes, strict=True):
            block = _Cursor(cursor.take(size))
            if name == _OPTIONS:
                options = _scalars(bytes(block.take(size)).rstrip(b"\0").decode())
            elif not name.startswith("special:") and not name.endswith("_QuantMultA"):
                tensors[name], scale = _tensor(path, name, kind, shape, block)
                if scale is not None:
                    scales[name] = scale
    except (EOFError, UnicodeDecodeError) as error:
        raise DamagedFile(f"The model file {path} is cut short or damaged: get it again.") from error
    return MarianFile(path, tensors, options, scales)


class _Cursor:
    """Bytes that are taken from front to back, and never beyond their end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._rest = memoryview(data)

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self._rest):
            raise EOFError
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def array(self, count: int, dtype: str) -> NDArray[Any]:
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype=dtype)

    def integers(self, count: int, dtype: str = "<u8") -> list[int]:
        return [int(number) for number in self.array(count, dtype)]


def _tensor(
    path: Path, name: str, kind: int, shape: tuple[int, ...], block: _Cursor
) -> tuple[NDArray[np.float32], float | None]:
    """The numbers, and what a 1 stood for if they have 8 bits in the file."""
    if not shape or min(shape) < 1:
        raise EOFError
    if kind == _FLOAT32:
        return block.array(prod(shape), "<f4").astype(np.float32).reshape(shape), None
    if kind != _INT8:
        raise DamagedFile(
            f"{path}: the tensor '{name}' has the type {kind:#x}; only float32 and 8-bit models can be read."
        )
    values = block.array(prod(shape), "i1")
    multiplier = block.array(1, "<f4")[0]
    if not (np.isfinite(multiplier) and multiplier > 0):
        raise EOFError
    real: NDArray[np.float32] = np.divide(values, multiplier, dtype=np.float32)
    # The 8-bit product wants its right factor transposed; the embedding is also looked up by row, and kept as it is.
    if name.endswith("Wemb"):
        return real.reshape(shape), 1 / float(multiplier)
    return real.reshape(shape[::-1]).T, 1 / float(multiplier)


def _scalars(text: str) -> dict[str, str]:
    """The `key: value` lines of a flat YAML text."""
    return {key: value.strip().strip("\"'") for key, value in re.findall(r"^([\w-]+):[ \t]*(.*)$", text, re.MULTILINE)}

"""Arrays and texts of several segments as if they lay in one; those of a single segment stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from knn_seq.storage.ragged import Ragged

SMALL_BYTES = 1 << 22  # arrays that are copied together, so that there are few places to look at

T = TypeVar("T")


class ConcatenatedRows:
    """Rows of several arrays of the same width, numbered through.

    Args:
        parts: The arrays, (n, ...) each.
    """

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self.parts = [part for part in parts if len(part)] or list(parts[:1])
        self.starts = np.cumsum([0, *map(len, self.parts)])
        self._second = int(self.starts[1])  # the first row that is not in the first part
        self.dtype, self.shape = parts[0].dtype, (int(self.starts[-1]), *parts[0].shape[1:])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            pieces = [
                part[max(start - first, 0) : max(stop - first, 0)]
                for first, part in zip(self.starts.tolist(), self.parts, strict=False)
                if first < stop and start < first + len(part)
            ]
            found = pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [self.parts[0][:0]])
            return found[::step]
        if isinstance(rows, int | np.integer):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"There is no row {rows} among {len(self)}.")
            place = int(np.searchsorted(self.starts, rows % len(self), side="right")) - 1
            return self.parts[place][rows % len(self) - self.starts[place]]
        chosen = np.asarray(rows)
        return self.take(np.flatnonzero(chosen) if chosen.dtype == bool else chosen)

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> ConcatenatedRows:
        """The rows of all parts, each changed the same way."""
        return ConcatenatedRows([change(part) for part in self.parts])

    def take(self, indices: Any, axis: int | None = 0, out: Any = None, mode: str = "raise") -> NDArray[Any]:
        """The rows of these numbers, in the shape of these; what `numpy.take` calls."""
        rows = np.asarray(indices, np.int64)
        if mode == "raise" and rows.size and not (int(rows.min()) >= 0 and int(rows.max()) < len(self)):
            raise IndexError(f"Some of the rows are not among the {len(self)} that there are.")
        # Nearly all rows are usually in the first part: those of others are put in their places afterwards.
        result: NDArray[Any] = np.take(self.parts[0], rows, axis=0, out=out, mode="clip")
        later = rows >= self._second
        if later.any():
            result[later] = self._later(rows[later])
        return result

    def _later(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Rows that are behind the first part, (n,)."""
        if len(self.parts) == 2:
            return np.take(self.parts[1], rows - self._second, axis=0, mode="clip")
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        of_part = np.searchsorted(self.starts[:-1], rows, side="right") - 1
        for place in np.unique(of_part).tolist():
            here = of_part == place
            found[here] = np.take(self.parts[place], rows[here] - self.starts[place], axis=0, mode="clip")
        return found


def joined_rows(parts: Sequence[NDArray[Any]]) -> Any:
    """The rows of all parts, numbered through; a plain array if there is one part, or if all are small."""
    groups: list[list[NDArray[Any]]] = []
    for part in parts:
        small = part.nbytes <= SMALL_BYTES
        if small and groups and sum(each.nbytes for each in groups[-1]) + part.nbytes <= SMALL_BYTES:
            groups[-1].append(part)
        else:
            groups.append([part])
    merged = [group[0] if len(group) == 1 else np.concatenate(group) for group in groups]
    return merged[0] if len(merged) == 1 else ConcatenatedRows(merged)


def joined_ragged(parts: Sequence[Ragged]) -> Ragged:
    """The sequences of all parts, numbered through."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(len(part.items) for part in parts)])
    offsets = [part.offsets[:-1] + first for part, first in zip(parts, ends.tolist(), strict=False)]
    return Ragged(joined_rows([part.items for part in parts]), np.concatenate([*offsets, ends[-1:]]))


class ConcatenatedSequence(Sequence[T]):
    """The items of several sequences, numbered through.

    Args:
        parts: The sequences.
    """

    def __init__(self, parts: Sequence[Sequence[T]]) -> None:
        self.parts = list(parts)
        self.starts = np.cumsum([0, *map(len, self.parts)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"There is no item {index} among {len(self)}.")
        place = int(np.searchsorted(self.starts, index % len(self), side="right")) - 1
        return self.parts[place][index % len(self) - int(self.starts[place])]


def joined_sequence(parts: Sequence[Sequence[T]]) -> Sequence[T]:
    """The items of all parts, numbered through."""
    return parts[0] if len(parts) == 1 else ConcatenatedSequence(parts)

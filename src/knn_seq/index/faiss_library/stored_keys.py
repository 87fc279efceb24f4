"""The datastore's keys, where they lie: on the disk, mapped into memory, and not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.parallel import FaissResult
from knn_seq.storage.concatenated import ConcatenatedRows, joined_rows

TABLE_BYTES = 512 << 10  # of the keys that are compared at a time: they are to stay in the cache of a core
MOST_QUERIES = 128  # whose keys that lie in later parts are copied together
OFFSET_MASK = 0xFFFFFFFF  # the bits of a place in a list, where faiss tells list and place instead of an id


def view_of(keys: NDArray[Any], inner_product: bool) -> Any:
    """An index of faiss whose vectors are the keys, (entries, dimension); they must outlive it."""
    kind = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    if keys.dtype == np.float16:
        view = faiss.IndexScalarQuantizer(keys.shape[1], faiss.ScalarQuantizer.QT_fp16, kind)
    else:
        view = faiss.IndexFlat(keys.shape[1], kind)
    return mapped(view, keys)


def mapped(index: Any, codes: NDArray[Any]) -> Any:
    """An empty index of faiss filled with codes, (entries, ...), where they lie; they must outlive it."""
    index.codes = _codes_at(codes.ctypes.data, codes.nbytes)
    index.ntotal, index.is_trained = len(codes), True
    return index


def _codes_at(address: int, size: int) -> Any:
    nobody = faiss.MaybeOwnedVectorUInt8().owner  # faiss is not to free what belongs to others
    return faiss.MaybeOwnedVectorUInt8.create_view(faiss.cast_integer_to_uint8_ptr(address), size, nobody)


def _as_one(keys: NDArray[Any]) -> NDArray[Any]:
    """Keys, (entries, dimension), as one item each, (entries,): copied faster than as many numbers."""
    return keys.view(f"V{keys.strides[0]}")[:, 0]


class KeyRanker:
    """Ranks candidates by their keys, with the very distances that faiss would find among these.

    A core that compares keys wherever they lie waits for each of them.  One that first copies a few hundred to one
    place has many on their way at a time, and then compares what its cache holds.

    Args:
        keys: (entries, dimension), float16 or float32; the id of an entry is its row.
        inner_product: The nearest is the one with the largest inner product, not the smallest distance.
    """

    def __init__(self, keys: NDArray[Any] | ConcatenatedRows, inner_product: bool) -> None:
        self.keys, self.inner_product = keys, inner_product
        parts = keys.parts if isinstance(keys, ConcatenatedRows) else [keys]
        self._first, *others = map(_as_one, parts)
        self._others = joined_rows(others) if others else None
        self._free: dict[int, list[_Table]] = {}  # for so many candidates, as many as there ever were threads at a time

    def rank(self, queries: NDArray[np.float32], candidates: NDArray[np.int64], k: int) -> FaissResult:
        """Squared distances, or inner products, and ids of the k nearest, (queries, k), nearest first.

        Args:
            queries: (n, dimension)
            candidates: (n, c), ids, at least k of them; -1 is none, and comes last.
            k: How many.
        """
        width = candidates.shape[1]
        tables = self._free.setdefault(width, [])
        try:
            table = tables.pop()
        except IndexError:
            table = _Table(self.keys, width, self.inner_product)
        distances, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        step = table.queries * max(MOST_QUERIES // table.queries, 1)
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            self._rank(table, queries[some], candidates[some], distances[some], places[some])
        tables.append(table)
        places &= OFFSET_MASK
        if len(queries) > 1:
            places += width * np.arange(len(queries))[:, None]
        ids = candidates.take(places)
        if int(ids[:, -1].min(initial=0)) < 0:
            distances[ids < 0] = -np.inf if self.inner_product else np.inf
        return distances, ids

    def _rank(
        self,
        table: _Table,
        queries: NDArray[np.float32],
        candidates: NDArray[np.int64],
        distances: NDArray[np.float32],
        places: NDArray[np.int64],
    ) -> None:
        """Fill in the distances of the k nearest and their places in the table, (n, k) each."""
        missing = candidates < 0 if candidates[:, -1].min() < 0 else None
        others = None if self._others is None else self._from(self._others, candidates, table.queries * table.width)
        for number, start in enumerate(range(0, len(queries), table.queries)):
            some = slice(start, start + table.queries)
            np.take(self._first, candidates[some], out=table.rows[: len(candidates[some])], mode="clip")
            if others is not None:
                places_of, rows = others[number]
                table.flat_rows[places_of] = rows
            if missing is not None:
                table.blank(queries[some], missing[some])
            table.search(queries[some], distances[some], places[some])

    def _from(self, others: Any, candidates: NDArray[np.int64], size: int) -> list[tuple[NDArray[np.int64], Any]]:
        """Where candidates stand that are not in the first part of the keys, and their keys, for each `size` of all."""
        later = np.flatnonzero(candidates >= len(self._first))
        rows = others.take(candidates.take(later) - len(self._first), mode="clip")
        ends = np.searchsorted(later, range(size, candidates.size, size))
        return list(zip(np.split(later % size, ends), np.split(rows, ends), strict=True))


class ListScan:
    """Rows in memory as lists of an IVF index of faiss; it is told with which of them each query is compared.

    All are compared, as sums of squared differences or as products: the result is exact.

    Args:
        lists: (lists, rows, dimension), float16 or float32.
        chosen: The list of each query, (most queries,).
        inner_product: The nearest is the one with the largest inner product, not the smallest distance.
    """

    def __init__(self, lists: NDArray[Any], chosen: NDArray[np.int64], inner_product: bool) -> None:
        self._held = lists, chosen, np.zeros(len(chosen), np.float32)  # the last: how far lists are does not count
        self._pointers = faiss.swig_ptr(chosen), faiss.swig_ptr(self._held[2])
        number, width, dimension = lists.shape
        kind = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
        self._quantizer = faiss.IndexFlat(dimension, kind)  # never asked
        if lists.dtype == np.float16:
            half = faiss.ScalarQuantizer.QT_fp16
            self._index = faiss.IndexIVFScalarQuantizer(self._quantizer, dimension, number, half, kind, False)
        else:
            self._index = faiss.IndexIVFFlat(self._quantizer, dimension, number, kind)
        size = dimension * lists.dtype.itemsize
        self._inverted = faiss.ArrayInvertedLists(number, size)
        codes = faiss.MaybeOwnedVectorUInt8Vector()
        for place, rows in enumerate(lists):
            self._inverted.resize(place, width)
            codes.push_back(_codes_at(rows.ctypes.data, width * size))
        self._inverted.codes.swap(codes)
        self._index.replace_invlists(self._inverted, False)
        self._index.is_trained, self._index.ntotal, self._index.nprobe = True, number * width, 1

    def search(self, queries: NDArray[np.float32], distances: NDArray[np.float32], places: NDArray[np.int64]) -> None:
        """Fill in the distances of each query's nearest rows, and where these are, (n, k) each.

        Args:
            queries: (n, dimension), in one piece of memory, like the others; at most as many as are told their lists.
            distances: Squared, or inner products.
            places: Those in the list are its lower 32 bits; -1: there are not as many rows.
        """
        rows, numbers, labels = map(faiss.swig_ptr, (queries, distances, places))
        lists, nowhere = self._pointers
        self._index.search_preassigned_c(len(queries), rows, distances.shape[1], lists, nowhere, numbers, labels, True)


class _Table:
    """Memory for the candidates of a few queries: a list for each query.

    Args:
        keys: Whose rows are copied into it.
        width: Candidates of a query.
        inner_product: As for `KeyRanker`.
    """

    def __init__(self, keys: NDArray[Any] | ConcatenatedRows, width: int, inner_product: bool) -> None:
        dimension, size = keys.shape[1], keys.shape[1] * keys.dtype.itemsize
        self.width, self.inner_product = width, inner_product
        self.queries = max(TABLE_BYTES // (width * size), 1)
        self.numbers = np.empty((self.queries, width, dimension), keys.dtype)
        self.rows = self.numbers.view(f"V{size}")[:, :, 0]
        self.flat_rows = self.rows.reshape(-1)
        self._scan = ListScan(self.numbers, np.arange(self.queries), inner_product)

    def blank(self, queries: NDArray[np.float32], missing: NDArray[np.bool_]) -> None:
        """Let rows that no candidate fills, (n, width), be farther from their queries than any key."""
        farthest = np.finfo(self.numbers.dtype).max if self.numbers.dtype == np.float16 else np.float32(1e15)
        for rows, query, none in zip(self.numbers, queries, missing, strict=False):
            rows[none] = -np.sign(query) * farthest if self.inner_product else farthest

    def search(self, queries: NDArray[np.float32], distances: NDArray[np.float32], places: NDArray[np.int64]) -> None:
        """Fill in the distances of each query's nearest rows, and where these are, (n, k) each."""
        self._scan.search(queries, distances, places)


def ranked_by_cosine(
    keys: NDArray[Any], queries: NDArray[np.float32], candidates: NDArray[np.int64], k: int
) -> FaissResult:
    """Twice the cosine distance and the number of the k nearest candidates, (queries, k).

    The stored keys, (entries, dimension), are not of length one, so faiss cannot rank by them as they lie there.
    """
    rows = torch.from_numpy(keys[candidates.clip(min=0)].astype(np.float32))  # (queries, candidates, dimension)
    near = torch.nn.functional.normalize(rows, dim=2) @ torch.from_numpy(queries)[:, :, None]
    numbers = (2 - 2 * near[:, :, 0]).clamp_(min=0).numpy()
    numbers[candidates < 0] = np.inf
    order = np.argsort(numbers, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(candidates, order, axis=1)

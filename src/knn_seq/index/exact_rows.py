"""A few rows in memory, searched exactly beside an index: what is nearer than the index's own neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.index.faiss_library.stored_keys import OFFSET_MASK, ListScan
from knn_seq.index.torch import product_rounding

MANY = 64  # queries: for so many a product tells first which of them have to be compared
FEW = 8  # neighbours that are asked for first: few of the nearest are among a few rows, unless all are

Found = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Distances and ids, (queries, k) each, nearest first; infinity and -1 where there are fewer."""


class ExactRows:
    """Rows with ids, each compared with each query.  They do not change: `with_rows` and `without` make others.

    Args:
        rows: (n, dimension), float16 or float32; of length one if the metric is the cosine.
        ids: (n,), ascending.
        metric: "l2", "ip" or "cosine".
    """

    def __init__(self, rows: NDArray[Any], ids: NDArray[np.int64], metric: str) -> None:
        self.rows, self.ids, self.metric = np.ascontiguousarray(rows), ids, metric
        self._scan = ListScan(self.rows[None], np.zeros(MANY, np.int64), metric == "ip") if len(rows) else None
        single = torch.from_numpy(self.rows.astype(np.float32))
        squares = single.square().sum(dim=1)
        self._longest = math.sqrt(float(squares.max())) if len(rows) else 0.0
        self._added, self._factors = (0 * squares, -single.T) if metric == "ip" else (squares, -2 * single.T)

    def __len__(self) -> int:
        return len(self.rows)

    def with_rows(self, rows: NDArray[Any], ids: NDArray[np.int64]) -> ExactRows:
        """The same with more rows, (n, dimension), of larger ids, (n,) ascending."""
        added = _normalized(rows) if self.metric == "cosine" else rows
        return ExactRows(np.concatenate([self.rows, added]), np.concatenate([self.ids, ids]), self.metric)

    def without(self, deleted: NDArray[np.bool_]) -> ExactRows:
        """The same without rows, (rows,) bool."""
        return ExactRows(self.rows[~deleted], self.ids[~deleted], self.metric) if deleted.any() else self

    def merge(self, queries: NDArray[np.float32], found: Found) -> Found:
        """The k nearest of what was found elsewhere, in rows of lower ids, and of these rows.

        Args:
            queries: (n, dimension).
            found: What was found elsewhere, (n, k); not changed, and returned if nothing here is nearer.
        """
        if self._scan is None or not len(queries):
            return found
        asked = np.ascontiguousarray(_normalized(queries) if self.metric == "cosine" else queries)
        k = found[0].shape[1]
        if len(queries) < MANY:
            return self._merge(self._scan, asked, found, k)
        possible = self._possible(asked, found[0][:, -1])
        if not possible.any():
            return found
        distances, ids = found[0].copy(), found[1].copy()
        some = found[0][possible], found[1][possible]
        distances[possible], ids[possible] = self._merge(self._scan, asked[possible], some, k)
        return distances, ids

    def _merge(self, scan: ListScan, queries: NDArray[np.float32], found: Found, k: int) -> Found:
        near, farthest = self._search(scan, queries, min(FEW, k)), found[0][:, -1]
        if not (near[0][:, 0] < farthest).any():
            return found
        nearest = _nearest(found, near, k)
        more = near[0][:, -1] < farthest  # others here may be as near
        if k > FEW and more.any():
            some = found[0][more], found[1][more]
            nearest[0][more], nearest[1][more] = _nearest(some, self._search(scan, queries[more], k), k)
        return nearest

    def _possible(self, queries: NDArray[np.float32], farthest: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Whether a row may be nearer to each query than that, (n,), by a product of matrices, which may err."""
        lengths = np.einsum("nd,nd->n", queries, queries)
        # Errors of single additions cancel each other, like steps of a random walk: 4 times their expected sum.
        relative = 4 * math.sqrt(queries.shape[1]) * 2**-24 + product_rounding()
        slack = 2 * relative * (np.sqrt(lengths) + self._longest) ** 2
        # Of the metric's sum all but the square of the query, which holds for all rows.
        rest = torch.addmm(self._added, torch.from_numpy(queries), self._factors).numpy().min(axis=1)
        limits = farthest if self.metric == "ip" else farthest * (2 if self.metric == "cosine" else 1) - lengths
        return np.asarray(rest <= limits + slack)

    def _search(self, scan: ListScan, queries: NDArray[np.float32], k: int) -> Found:
        distances, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        for start in range(0, len(queries), MANY):
            some = slice(start, start + MANY)
            scan.search(queries[some], distances[some], places[some])
        if k > len(self.rows):
            missing = places < 0
            ids = np.where(missing, -1, self.ids.take(places & OFFSET_MASK, mode="clip"))
            distances[missing] = -np.inf if self.metric == "ip" else np.inf
        else:
            ids = self.ids.take(places & OFFSET_MASK)
        distances *= {"l2": 1.0, "ip": -1.0, "cosine": 0.5}[self.metric]
        return distances, ids


def _nearest(found: Found, near: Found, k: int) -> Found:
    """The k nearest of both, (n, ...) each; of equally near ones those that were found."""
    distances, ids = np.concatenate([found[0], near[0]], axis=1), np.concatenate([found[1], near[1]], axis=1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1)


def _normalized(vectors: NDArray[Any]) -> NDArray[np.float32]:
    rows = np.asarray(vectors, np.float32)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float32)

"""A few rows in memory, searched exactly beside an index: what is nearer than the index's own neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library.stored_keys import OFFSET_MASK, ListScan

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
        self._scan = ListScan(self.rows[None], metric == "ip") if len(rows) else None

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
        farthest, k = found[0][:, -1], found[0].shape[1]
        near = self._search(self._scan, asked, min(FEW, k))
        nearer = near[0][:, 0] < farthest
        if not nearer.any():
            return found
        distances, ids = found[0].copy(), found[1].copy()
        many = near[0][:, -1] < farthest  # more of them may be as near
        if many.any() and k > FEW:
            distances[many], ids[many] = _nearest(found, self._search(self._scan, asked[many], k), many, k)
            nearer &= ~many
        few = near[0][nearer], near[1][nearer]
        distances[nearer], ids[nearer] = _nearest(found, few, nearer, k)
        return distances, ids

    def _search(self, scan: ListScan, queries: NDArray[np.float32], k: int) -> Found:
        distances, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        scan.search(queries, np.zeros(len(queries), np.int64), distances, places)
        if k > len(self.rows):
            missing = places < 0
            ids = np.where(missing, -1, self.ids.take(places & OFFSET_MASK, mode="clip"))
            distances[missing] = -np.inf if self.metric == "ip" else np.inf
        else:
            ids = self.ids.take(places & OFFSET_MASK)
        if self.metric == "ip":
            return -distances, ids
        return (distances / 2 if self.metric == "cosine" else distances), ids


def _nearest(found: Found, near: Found, rows: NDArray[np.bool_], k: int) -> Found:
    """The k nearest of what was found for some rows and what is near these; of equally near ones the former."""
    distances = np.concatenate([found[0][rows], near[0]], axis=1)
    ids = np.concatenate([found[1][rows], near[1]], axis=1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1)


def _normalized(vectors: NDArray[Any]) -> NDArray[np.float32]:
    rows = np.asarray(vectors, np.float32)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float32)

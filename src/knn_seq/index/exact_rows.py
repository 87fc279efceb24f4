"""A few rows in memory, searched exactly beside an index: what is nearer than the index's own neighbours."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.torch import product_rounding

Found = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Distances and ids, (queries, k) each, nearest first; infinity and -1 where there are fewer."""


class ExactRows:
    """Rows with ids, compared with queries by one product of matrices in float32.

    The product finds candidates, sums of squared differences (or products) rank them; all are candidates that rounding
    in the product may have hidden, so the result is exact.  It does not change: `with_rows` and `without` make others.

    Args:
        dimension: Of rows and queries.
        metric: "l2", "ip" or "cosine".
    """

    def __init__(self, dimension: int, metric: str) -> None:
        self.dimension, self.metric = dimension, metric
        self.rows = np.empty((0, dimension), np.float32)  # of length one if the metric is the cosine
        self.ids = np.empty(0, np.int64)
        self.centre = np.zeros(dimension, np.float32)  # from there products lose fewer digits
        self._centred = self.rows
        self._offsets = np.empty(0, np.float32)  # what a row adds to its distance; infinity: it is deleted
        self._farthest = 0.0  # from the centre

    def __len__(self) -> int:
        return int(np.isfinite(self._offsets).sum())

    def with_rows(self, rows: NDArray[Any], ids: NDArray[np.int64]) -> ExactRows:
        """The same with more rows, (n, dimension), of larger ids, (n,) ascending."""
        added = self._comparable(np.asarray(rows, np.float32))
        other = copy.copy(self)
        if not len(self.rows) and self.metric != "ip":
            other.centre = added.mean(axis=0)
        centred = added - other.centre
        squares = np.einsum("nd,nd->n", centred, centred)
        other.rows, other.ids = np.concatenate([self.rows, added]), np.concatenate([self.ids, ids])
        other._centred = np.concatenate([self._centred, centred])
        offsets = np.zeros_like(squares) if self.metric == "ip" else squares
        other._offsets = np.concatenate([self._offsets, offsets])
        other._farthest = max(self._farthest, math.sqrt(float(squares.max(initial=0.0))))
        return other

    def without(self, deleted: NDArray[np.bool_]) -> ExactRows:
        """The same without rows, (rows,) bool."""
        if not deleted.any():
            return self
        other = copy.copy(self)
        other._offsets = np.where(deleted, np.float32(np.inf), self._offsets)
        return other

    def merge(self, queries: NDArray[np.float32], found: Found) -> Found:
        """The k nearest of what was found elsewhere, in rows of lower ids, and of these rows.

        Args:
            queries: (n, dimension).
            found: What was found elsewhere, (n, k).
        """
        distances, ids = found
        if not len(self.rows) or not len(queries):
            return found
        k, asked = distances.shape[1], self._comparable(queries)
        bounds = distances[:, -1] * (2 if self.metric == "cosine" else 1)
        near, places = self._nearer(asked, bounds, k)
        if near is None:
            return found
        if self.metric == "cosine":
            near /= 2
        both = np.concatenate([distances, near], axis=1)
        numbers = np.concatenate([ids, np.where(np.isfinite(near), self.ids[places], -1)], axis=1)
        order = np.argsort(both, axis=1, kind="stable")[:, :k]  # of equally near ones the lower ids come first
        return np.take_along_axis(both, order, axis=1), np.take_along_axis(numbers, order, axis=1)

    def _nearer(self, asked: NDArray[np.float32], bounds: NDArray[np.float32], k: int) -> tuple[Any, Any]:
        """Exact distances and places of rows that may be among the k nearest, (n, candidates); None: there are none.

        Args:
            asked: Queries, (n, dimension).
            bounds: How far a row may be to matter, (n,).
            k: How many matter.
        """
        moved = asked - self.centre
        lengths = np.einsum("nd,nd->n", moved, moved)
        products = moved @ self._centred.T if self.metric != "ip" else asked @ self.rows.T
        if self.metric == "ip":
            limits = bounds
            products *= -1
        else:
            limits = bounds - lengths
            products *= -2
        products += self._offsets
        slack = self._slack(asked if self.metric == "ip" else moved)
        if products.shape[1] > k:
            worst = np.isinf(limits)
            if worst.any():  # fewer than k were found: then the k nearest rows matter, and not all
                limits = np.where(worst, np.partition(products, k - 1, axis=1)[:, k - 1] + slack, limits)
        candidates = (products <= (limits + slack)[:, None]) & np.isfinite(self._offsets)
        counts = candidates.sum(axis=1)
        most = int(counts.max())
        if not most:
            return None, None
        queries, columns = np.nonzero(candidates)
        first = np.cumsum(counts) - counts
        places = np.zeros((len(asked), most), np.int64)
        near = np.full(places.shape, np.inf, np.float32)
        turn = np.arange(len(queries)) - first[queries]
        places[queries, turn] = columns
        chosen = self.rows[columns]
        if self.metric == "ip":
            near[queries, turn] = -np.einsum("nd,nd->n", asked[queries], chosen)
        else:
            apart = asked[queries] - chosen
            near[queries, turn] = np.einsum("nd,nd->n", apart, apart)
        return near, places

    def _slack(self, moved: NDArray[np.float32]) -> NDArray[np.float32]:
        """How much a distance out of a product may differ from an exact one, (n,)."""
        # Errors of single additions cancel each other, like steps of a random walk: 4 times their expected sum.
        relative = 4 * math.sqrt(self.dimension) * 2**-24 + product_rounding()
        lengths = np.sqrt(np.einsum("nd,nd->n", moved, moved))
        return np.asarray(2 * relative * (lengths + self._farthest) ** 2, np.float32)

    def _comparable(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.metric != "cosine":
            return vectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)

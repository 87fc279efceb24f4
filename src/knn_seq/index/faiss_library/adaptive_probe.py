"""Inverted lists of which a query visits the near ones only."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library.layers import inverted_lists, transforms

LEAST_LISTS = 8  # that a query visits however far they are: one very near list says little of the others


class Chosen(NamedTuple):
    """The lists that each of the queries may visit."""

    points: NDArray[np.float32]  # (queries, dimension), the queries transformed
    lists: NDArray[np.int64]  # (queries, nprobe), nearest first
    distances: NDArray[np.float32]  # (queries, nprobe), of their centroids, squared
    near: NDArray[np.bool_]  # (queries, nprobe), which of them are visited


class AdaptiveProbe:
    """Searches an IVF index behind transforms, or none, by l2.

    Some queries lie deep in one list, some between many.  One number of lists is too many for the first and too few for
    the second: here each visits those that are about as near as its nearest, and at most as many as the index allows
    (its `nprobe`).

    Args:
        index: Of faiss.
        reach: A list is visited if the squared distance to its centroid is at most so many times the nearest's.
    """

    def __init__(self, index: Any, reach: float) -> None:
        self.ivf: Any = inverted_lists(index)
        self.transforms, self.reach = transforms(index), reach

    def choose(self, queries: NDArray[np.float32]) -> Chosen:
        """The lists that queries, (n, dimension), visit."""
        points = queries
        for transform in self.transforms:
            points = transform.apply(points)
        distances, lists = self.ivf.quantizer.search(points, self.ivf.nprobe)
        return Chosen(points, lists, distances, self._near(distances))

    def search(self, chosen: Chosen, share: slice, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Distances and ids for some of the queries, (n, k), as the index itself would give them; -1 is no id."""
        points, lists, distances, near = (each[share] for each in chosen)
        numbers, ids = self.ivf.search_preassigned(points, k, np.where(near, lists, -1), distances)
        if ids[:, -1].min() < 0:
            short = ids[:, -1] < 0  # their near lists have too few entries
            numbers[short], ids[short] = self.ivf.search_preassigned(points[short], k, lists[short], distances[short])
        return numbers, ids

    def _near(self, distances: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which lists are visited, by the squared distances of their centroids, nearest first."""
        near = distances <= self.reach * distances[:, :1]
        near[:, :LEAST_LISTS] = True
        return near

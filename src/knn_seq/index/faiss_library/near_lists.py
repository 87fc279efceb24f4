"""Inverted lists of which a query visits the near ones only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library.layers import inverted_lists, transforms

LEAST_LISTS = 8  # that a query visits however far they are: one very near list says little of the others


class NearLists:
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

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Distances and ids, (queries, k), as the index itself would give them; -1 is no id."""
        points = self._transformed(queries)
        distances, lists = self.ivf.quantizer.search(points, self.ivf.nprobe)
        near = np.where(self._near(distances), lists, -1)
        numbers, ids = self.ivf.search_preassigned(points, k, near, distances)
        short = ids[:, -1] < 0  # the near lists of these have too few entries
        if short.any():
            numbers[short], ids[short] = self.ivf.search_preassigned(points[short], k, lists[short], distances[short])
        return numbers, ids

    def visited(self, queries: NDArray[np.float32]) -> float:
        """How many lists a query visits, on average."""
        distances, _ = self.ivf.quantizer.search(self._transformed(queries), self.ivf.nprobe)
        return float(self._near(distances).sum(1).mean())

    def _near(self, distances: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which lists are visited, by the squared distances of their centroids, nearest first."""
        near = distances <= self.reach * distances[:, :1]
        near[:, :LEAST_LISTS] = True
        return near

    def _transformed(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        for transform in self.transforms:
            points = transform.apply(points)
        return points

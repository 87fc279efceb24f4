"""IVF search in which a query visits as many inverted lists as lie near it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import inverted_lists, transforms
from knn_seq.index.faiss_library.live_entries import LiveEntries, list_parameters
from knn_seq.index.faiss_library.parallel import FaissResult

MIN_NPROBE = 8  # lists that a query visits however far they are: one very near list says little of the others


class ProbedLists(NamedTuple):
    """The lists that each of the queries may visit."""

    points: NDArray[np.float32]  # (queries, dimension), the queries transformed
    lists: NDArray[np.int64]  # (queries, nprobe), nearest first
    distances: NDArray[np.float32]  # (queries, nprobe), of their centroids, squared
    near: NDArray[np.bool_]  # (queries, nprobe), which of them are visited


class AdaptiveProbe:
    """Searches an IVF index behind transforms, or none, by l2.

    Some queries lie deep in one list, some between many.  One number of lists is too many for the first and too few for
    the second: here a query visits a list if the squared distance to its centroid is at most `probe_ratio` times that
    of the nearest list, up to `nprobe` lists.

    Args:
        index: Of faiss.
    """

    def __init__(self, index: Any) -> None:
        self.ivf: Any = inverted_lists(index)
        self.transforms = transforms(index)

    def choose(
        self, queries: NDArray[np.float32], nprobe: int, probe_ratio: float, quantizer_parameters: Any = None
    ) -> ProbedLists:
        """The lists that queries visit.

        Args:
            queries: (n, dimension).
            nprobe: Lists that each visits at most.
            probe_ratio: How many times as far as the nearest list one may be, in squared distances.
            quantizer_parameters: faiss's search parameters for finding the lists; None: as the quantizer is set.
        """
        points = queries
        for transform in self.transforms:
            points = transform.apply(points)
        distances, lists = self.ivf.quantizer.search(points, min(nprobe, self.ivf.nlist), params=quantizer_parameters)
        near = distances <= probe_ratio * distances[:, :1]
        near[:, :MIN_NPROBE] = True
        return ProbedLists(points, lists, distances, near)

    def search(self, probed: ProbedLists, rows: slice, k: int, live: LiveEntries | None = None) -> FaissResult:
        """Distances and ids for some of the queries, (n, k), as the index itself would give them; -1 is no id."""
        points, lists, distances = probed.points[rows], probed.lists[rows], probed.distances[rows]
        numbers, ids = self._search_lists(points, np.where(probed.near[rows], lists, -1), distances, k, live)
        if ids[:, -1].min() < 0:
            short = ids[:, -1] < 0  # their near lists have too few entries
            numbers[short], ids[short] = self._search_lists(points[short], lists[short], distances[short], k, live)
        return numbers, ids

    def _search_lists(
        self,
        points: NDArray[np.float32],
        lists: NDArray[np.int64],
        distances: NDArray[np.float32],
        k: int,
        live: LiveEntries | None,
    ) -> FaissResult:
        """As faiss's `search_preassigned`, whose Python wrapper takes only as many lists as the index is set to."""
        numbers, ids = np.empty((len(points), k), np.float32), np.empty((len(points), k), np.int64)
        arrays = [np.ascontiguousarray(each) for each in (points, lists, distances)]  # held while faiss reads them
        query_pointer, list_pointer, distance_pointer = map(faiss.swig_ptr, arrays)
        found = faiss.swig_ptr(numbers), faiss.swig_ptr(ids)
        parameters = list_parameters(lists.shape[1], live)
        self.ivf.search_preassigned_c(
            len(points), query_pointer, k, list_pointer, distance_pointer, *found, False, parameters
        )
        return numbers, ids

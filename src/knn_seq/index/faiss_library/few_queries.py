"""The search of near lists for a few queries, where calling faiss takes as long as its work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.adaptive_probe import MIN_NPROBE, AdaptiveProbe
from knn_seq.index.faiss_library.live_entries import LiveEntries, list_parameters
from knn_seq.index.faiss_library.parallel import FaissResult, one_thread

MOST_QUERIES = 8  # for more, what this saves is little of what they take


class FewQueries:
    """Finds what an `AdaptiveProbe` finds, with memory and pointers that are made once.

    Args:
        adaptive: What it does for more queries.
        nprobe: Lists that each visits at most.
        probe_ratio: How many times as far as the nearest list one may be, in squared distances.
    """

    def __init__(self, adaptive: AdaptiveProbe, nprobe: int, probe_ratio: float) -> None:
        self.adaptive, self.probe_ratio = adaptive, probe_ratio
        self.nprobe = min(nprobe, adaptive.ivf.nlist)
        self._free: dict[tuple[int, int], list[_Space]] = {}  # as many of a kind as there ever were threads at a time

    def search(self, queries: NDArray[np.float32], k: int, live: LiveEntries | None = None) -> FaissResult:
        """Distances and ids, (n, k), -1 is no id; valid until the thread's next search.

        Args:
            queries: (n, dimension), in one piece of memory.
            k: How many.
            live: Those that may be found; None: all.
        """
        spaces = self._free.setdefault((len(queries), k), [])
        try:
            space = spaces.pop()
        except IndexError:
            space = _Space(self.adaptive, len(queries), self.nprobe, k)
        space.search(queries, self.probe_ratio, list_parameters(self.nprobe, live))
        spaces.append(space)
        if space.ids[:, -1].min() < 0:  # near lists have too few entries
            probed = self.adaptive.choose(queries, self.nprobe, self.probe_ratio)
            return self.adaptive.search(probed, slice(0, len(queries)), k, live)
        return space.distances.copy(), space.ids.copy()


class _Space:
    """Memory for the search of so many queries, and where it lies."""

    def __init__(self, adaptive: AdaptiveProbe, queries: int, nprobe: int, k: int) -> None:
        self.queries, self.nprobe, self.k = queries, nprobe, k
        self.ivf, self.quantizer = adaptive.ivf, faiss.downcast_index(adaptive.ivf.quantizer)
        first = adaptive.transforms[0].d_in if adaptive.transforms else adaptive.ivf.d
        self._points = [np.empty((queries, first), np.float32)]
        self._points += [np.empty((queries, transform.d_out), np.float32) for transform in adaptive.transforms]
        pointers = [faiss.swig_ptr(points) for points in self._points]
        self._steps = list(zip(adaptive.transforms, pointers[:-1], pointers[1:], strict=True))
        self._point_pointer: Any = pointers[-1]
        self._lists = np.empty((queries, nprobe), np.int64)
        self._list_distances = np.empty((queries, nprobe), np.float32)
        self.distances, self.ids = np.empty((queries, k), np.float32), np.empty((queries, k), np.int64)
        arrays = (self._lists, self._list_distances, self.distances, self.ids)
        self._pointers: Any = tuple(map(faiss.swig_ptr, arrays))

    def search(self, queries: NDArray[np.float32], probe_ratio: float, parameters: Any) -> None:
        """Fill in distances and ids."""
        lists, list_distances, distances, ids = self._pointers
        self._points[0][:] = queries
        with one_thread():  # OpenBLAS would wake others for what takes less time than that
            for transform, before, after in self._steps:
                transform.apply_noalloc(self.queries, before, after)
        self.quantizer.search_c(self.queries, self._point_pointer, self.nprobe, list_distances, lists)
        far = self._list_distances > probe_ratio * self._list_distances[:, :1]
        far[:, :MIN_NPROBE] = False
        self._lists[far] = -1
        self.ivf.search_preassigned_c(
            self.queries, self._point_pointer, self.k, lists, list_distances, distances, ids, False, parameters
        )

"""An index of faiss, opened for searching with any options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library.adaptive_probe import AdaptiveProbe, ProbedLists
from knn_seq.index.faiss_library.few_queries import MOST_QUERIES, FewQueries
from knn_seq.index.faiss_library.gpu import GpuIndex
from knn_seq.index.faiss_library.layers import inverted_lists, make_tables
from knn_seq.index.faiss_library.live_entries import LiveEntries
from knn_seq.index.faiss_library.parallel import FaissResult, search_in_threads
from knn_seq.index.faiss_library.search_options import SearchOptions, search_parameters, set_defaults


class Searcher:
    """Searches an index, on GPUs if faiss can; no search changes it, so that several threads may use it at a time.

    Args:
        index: Of faiss, complete.
        defaults: The options that most searches use.
    """

    def __init__(self, index: Any, defaults: SearchOptions) -> None:
        self.index, self.defaults = index, defaults
        set_defaults(index, defaults)
        make_tables(index)
        self.gpu = GpuIndex.of(index)
        self.adaptive = None if inverted_lists(index) is None or self.gpu else AdaptiveProbe(index)
        self.few: FewQueries | None = None  # with the default options
        if self.adaptive is not None and defaults.probe_ratio is not None:
            self.few = FewQueries(self.adaptive, defaults.nprobe, defaults.probe_ratio)

    def search(
        self, queries: NDArray[np.float32], k: int, options: SearchOptions, live: LiveEntries | None = None
    ) -> FaissResult:
        """The k nearest of each query, (n, dimension), of all entries or of those that are live."""
        if (few := self._few(queries, options)) is not None:
            return few.search(queries, k, live)
        probed = self._probed(queries, options)
        if self.adaptive is None or probed is None:  # faiss divides the queries among threads by itself
            return self._search(queries, k, options, live)
        adaptive = self.adaptive
        return search_in_threads(lambda rows: adaptive.search(probed, rows, k, live), len(queries), k)

    def search_and_rank(
        self,
        queries: NDArray[np.float32],
        candidates: int,
        options: SearchOptions,
        rank: Callable[[slice, NDArray[np.int64]], FaissResult],
        k: int,
        live: LiveEntries | None = None,
    ) -> FaissResult:
        """The k nearest among so many candidates of each query, (n, dimension).

        Args:
            queries: (n, dimension).
            candidates: How many are found.
            options: How they are searched for.
            rank: Given some rows of the queries and their candidates, (rows, candidates), the k nearest.
            k: How many.
            live: The entries that may be found; None: all.
        """
        if (few := self._few(queries, options)) is not None:
            return rank(slice(0, len(queries)), few.search(queries, candidates, live)[1])
        probed = self._probed(queries, options)
        if self.adaptive is None or probed is None:
            found = self._search(queries, candidates, options, live)[1]
            return search_in_threads(lambda rows: rank(rows, found[rows]), len(queries), k)
        adaptive = self.adaptive
        return search_in_threads(
            lambda rows: rank(rows, adaptive.search(probed, rows, candidates, live)[1]), len(queries), k
        )

    def _few(self, queries: NDArray[np.float32], options: SearchOptions) -> FewQueries | None:
        """What searches these queries, if they are few and nothing is asked for but the defaults."""
        return self.few if len(queries) <= MOST_QUERIES and options is self.defaults else None

    def _probed(self, queries: NDArray[np.float32], options: SearchOptions) -> ProbedLists | None:
        """The lists that queries visit by a probe ratio; None: faiss chooses them."""
        if self.adaptive is None or options.probe_ratio is None:
            return None
        parameters = None
        if options.ef_search != self.defaults.ef_search:
            parameters = search_parameters(self.adaptive.ivf.quantizer, options)
        return self.adaptive.choose(queries, options.nprobe, options.probe_ratio, parameters)

    def _search(
        self, queries: NDArray[np.float32], k: int, options: SearchOptions, live: LiveEntries | None
    ) -> FaissResult:
        if self.gpu is not None:
            return self.gpu.search(queries, k, options.nprobe)
        default = options == self.defaults and live is None
        parameters = None if default else search_parameters(self.index, options, live)
        found: FaissResult = self.index.search(queries, k, params=parameters)
        return found

"""Many small searches, each on one core, instead of one after the other on all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library import faiss

MIN_QUERIES_PER_THREAD = 8  # for fewer a thread is not worth the wait for Python's lock; faiss divides them by itself

T = TypeVar("T")
FaissResult = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Distances and ids, (queries, k) each, as faiss gives them; -1 is no id."""


def run_in_threads(work: Callable[[Iterable[T]], None], items: Sequence[T]) -> None:
    """Do the work for all items, divided among as many threads as faiss would use for a single one."""
    threads = min(faiss.omp_get_max_threads(), len(items))
    if threads <= 1:
        work(items)
        return
    # A thread of the pool waits for OpenMP less than one that starts others for a tenth of a millisecond of work.
    own, *others = (items[start::threads] for start in range(threads))
    running = [_pool(threads - 1).submit(work, part) for part in others]
    with one_thread():
        work(own)
    for part in running:
        part.result()


def search_in_threads(search: Callable[[slice], FaissResult], queries: int, k: int) -> FaissResult:
    """What a search finds for all queries, (queries, k), divided among threads if there are many."""
    parts = min(faiss.omp_get_max_threads(), queries // MIN_QUERIES_PER_THREAD)
    if parts <= 1:
        return search(slice(0, queries))
    bounds = [queries * number // parts for number in range(parts + 1)]
    distances, ids = np.empty((queries, k), np.float32), np.empty((queries, k), np.int64)

    def search_each(numbers: Iterable[int]) -> None:
        for number in numbers:
            rows = slice(bounds[number], bounds[number + 1])
            distances[rows], ids[rows] = search(rows)

    run_in_threads(search_each, range(parts))
    return distances, ids


@contextmanager
def one_thread() -> Iterator[None]:
    """No parallel loops of faiss in this thread; others keep theirs, since OpenMP counts for each of them."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "search", initializer=lambda: faiss.omp_set_num_threads(1))

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

LEAST_SHARE = 8  # queries: for fewer a thread is not worth the wait for Python's lock; faiss deals them out by itself

T = TypeVar("T")
Found = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Distances and ids, (queries, k) each."""


def side_by_side(work: Callable[[Iterable[T]], None], items: Sequence[T]) -> None:
    """Do the work for all items, shared out among as many threads as faiss would use for a single one."""
    threads = min(faiss.omp_get_max_threads(), len(items))
    if threads <= 1:
        work(items)
        return
    # A thread of the pool waits for OpenMP less than one that starts others for a tenth of a millisecond of work.
    own, *others = (items[start::threads] for start in range(threads))
    begun = [_pool(threads - 1).submit(work, share) for share in others]
    with one_thread():
        work(own)
    for share in begun:
        share.result()


def in_shares(search: Callable[[slice], Found], queries: int, k: int) -> Found:
    """What a search finds for all queries, (queries, k), each of the threads with some of them if there are many."""
    shares = min(faiss.omp_get_max_threads(), queries // LEAST_SHARE)
    if shares <= 1:
        return search(slice(0, queries))
    bounds = [queries * number // shares for number in range(shares + 1)]
    distances, ids = np.empty((queries, k), np.float32), np.empty((queries, k), np.int64)

    def search_each(numbers: Iterable[int]) -> None:
        for number in numbers:
            share = slice(bounds[number], bounds[number + 1])
            distances[share], ids[share] = search(share)

    side_by_side(search_each, range(shares))
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

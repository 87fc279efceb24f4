"""Many small searches, each on one core, instead of one after the other on all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from knn_seq.index.faiss_library import faiss

T = TypeVar("T")


def side_by_side(work: Callable[[Iterable[T]], None], items: Sequence[T]) -> None:
    """Do the work for all items, shared out among as many threads as faiss would use for a single one."""
    threads = min(faiss.omp_get_max_threads(), len(items))
    if threads <= 1:
        work(items)
        return
    # A thread of the pool waits for OpenMP less than one that starts others for a tenth of a millisecond of work.
    for _ in _pool(threads).map(work, [items[start::threads] for start in range(threads)]):
        pass


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "search", initializer=lambda: faiss.omp_set_num_threads(1))

"""As many threads of faiss as a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from knn_seq.index.faiss_library import faiss


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many in this thread, and as before afterwards."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)

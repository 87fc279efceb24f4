from __future__ import annotations

import pytest

from knn_seq.index.faiss import faiss


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On busy cores faiss's threads wait for each other much longer than these small indexes take."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)

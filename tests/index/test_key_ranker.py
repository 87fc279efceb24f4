"""Candidates ranked by keys that were copied to one place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from faiss_threads import threads
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.index.faiss_library import faiss, stored_keys
from knn_seq.index.faiss_library.parallel import MIN_QUERIES_PER_THREAD, search_in_threads
from knn_seq.index.faiss_library.stored_keys import KeyRanker, view_of

DIMENSION = 24


def ranked_one_by_one(keys, queries, candidates, k, inner_product):
    """(number, id) of the nearest, query by query."""
    found = []
    for query, row in zip(queries, candidates, strict=True):
        near = []
        for entry in row[row >= 0]:
            key = keys[entry].astype(np.float64)
            near.append((float(key @ query) if inner_product else float(((key - query) ** 2).sum()), int(entry)))
        near.sort(key=lambda pair: -pair[0] if inner_product else pair[0])
        found.append(near[:k])
    return found


@given(
    st.sampled_from(["float16", "float32"]),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 90),
    st.data(),
)
def test_like_a_slow_ranking(dtype, inner_product, count, width, data):
    k = data.draw(st.integers(1, width))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    keys = random.standard_normal((500, DIMENSION)).astype(dtype)
    queries = random.standard_normal((count, DIMENSION)).astype(np.float32)
    candidates = np.stack([random.permutation(500)[:width] for _ in range(count)])
    for row in candidates:
        row[width - data.draw(st.integers(0, width)) :] = -1
    numbers, ids = KeyRanker(keys, inner_product).rank(queries, candidates, k)
    expected = ranked_one_by_one(keys, queries, candidates, k, inner_product)
    for row, (near, found) in enumerate(zip(expected, ids, strict=True)):
        assert (found[: len(near)] >= 0).all()
        assert (found[len(near) :] == -1).all()
        assert np.isinf(numbers[row, len(near) :]).all()
        np.testing.assert_allclose(numbers[row, : len(near)], [pair[0] for pair in near], rtol=1e-4, atol=1e-4)
        assert set(found[: len(near)].tolist()) <= set(candidates[row].tolist())


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("table_bytes", [1, 2000, 512 << 10])
def test_the_very_distances_of_faiss(dtype, table_bytes, monkeypatch):
    monkeypatch.setattr(stored_keys, "TABLE_BYTES", table_bytes)
    random = np.random.default_rng(0)
    keys = random.standard_normal((3000, DIMENSION)).astype(dtype)
    queries = random.standard_normal((37, DIMENSION)).astype(np.float32)
    base = faiss.index_factory(DIMENSION, "PQ6x4")
    base.train(keys.astype(np.float32))
    base.add(keys.astype(np.float32))
    view = view_of(keys, False)
    refined = faiss.IndexRefine(base, view)
    refined.k_factor = 5
    numbers, ids = refined.search(queries, 10)
    found = KeyRanker(keys, False).rank(queries, base.search(queries, 50)[1], 10)
    assert (found[0] == numbers).all()
    assert (found[1] == ids).all()


def test_many_threads_at_a_time():
    random = np.random.default_rng(0)
    keys = random.standard_normal((3000, DIMENSION)).astype(np.float16)
    ranker = KeyRanker(keys, False)
    queries = random.standard_normal((200, DIMENSION)).astype(np.float32)
    widths = [20 + 10 * (number % 3) for number in range(40)]
    work = [(queries[5 * n : 5 * n + 5], random.integers(0, 3000, (5, width))) for n, width in enumerate(widths)]
    one_by_one = [ranker.rank(*each, 7) for each in work]
    with ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(lambda each: ranker.rank(*each, 7), work))
    for first, second in zip(one_by_one, at_once, strict=True):
        assert (first[0] == second[0]).all()


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("queries", [1, MIN_QUERIES_PER_THREAD, 2 * MIN_QUERIES_PER_THREAD, 61])
def test_parts_are_put_together(count, queries):
    parts = []

    def search(part: slice) -> tuple[np.ndarray, np.ndarray]:
        parts.append(part)
        rows = np.arange(queries)[part, None]
        return rows + np.zeros((1, 3), np.float32), rows * 10 + np.arange(3)

    with threads(count):
        distances, ids = search_in_threads(search, queries, 3)
    assert ids.tolist() == [[10 * row, 10 * row + 1, 10 * row + 2] for row in range(queries)]
    assert distances[:, 0].tolist() == list(range(queries))
    assert len(parts) == max(min(count, queries // MIN_QUERIES_PER_THREAD), 1)


def test_an_error_in_a_thread_is_raised():
    def search(part: slice) -> tuple[np.ndarray, np.ndarray]:
        if part.start:
            raise ValueError("a part")
        return np.zeros((part.stop, 1), np.float32), np.zeros((part.stop, 1), np.int64)

    with threads(2), pytest.raises(ValueError, match="a part"):
        search_in_threads(search, 4 * MIN_QUERIES_PER_THREAD, 1)

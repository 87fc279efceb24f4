"""Search over keys that do not fit into memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search_index import exact

from knn_seq.errors import KnnSeqError
from knn_seq.index import exact as exact_module
from knn_seq.index.exact import exact_search
from knn_seq.index.torch import TorchIndex
from knn_seq.settings import DISTANCE_METRICS

any_search = given(
    entries=st.integers(1, 200),
    count=st.integers(1, 12),
    dimension=st.integers(1, 12),
    k=st.integers(1, 40),
    metric=st.sampled_from(DISTANCE_METRICS),
    rows=st.sampled_from([1, 7, 64, 1000]),
    coarse=st.booleans(),
    seed=st.integers(0, 1000),
)


def make(entries, count, dimension, coarse, seed):
    random = np.random.default_rng(seed)
    if coarse:  # many distances occur often
        keys, queries = (random.integers(-1, 2, (rows, dimension)) for rows in (entries, count))
    else:
        keys, queries = (random.standard_normal((rows, dimension)) for rows in (entries, count))
    return keys.astype(np.float16), queries.astype(np.float32)


@settings(max_examples=150, deadline=None)
@any_search
def test_blocks_find_what_one_exact_index_finds(entries, count, dimension, k, metric, rows, coarse, seed):
    keys, queries = make(entries, count, dimension, coarse, seed)
    whole = TorchIndex(dimension, metric, device="cpu")
    whole.add(keys)
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_module, "CHUNK_BYTES", 4 * dimension * rows)
        found = exact_search(keys, queries, k, metric, on_progress=read.append)
    expected = whole.search(queries, k)
    assert torch.equal(found.distances, expected.distances)
    assert torch.equal(found.ids, expected.ids)
    assert sum(read) == entries
    assert max(read) <= rows


@settings(max_examples=100, deadline=None)
@any_search
def test_a_key_does_not_find_itself(entries, count, dimension, k, metric, rows, coarse, seed):
    keys, _ = make(entries, 1, dimension, coarse, seed)
    chosen = np.random.default_rng(seed).integers(entries, size=count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_module, "CHUNK_BYTES", 4 * dimension * rows)
        found = exact_search(keys, keys[chosen], k, metric, exclude=torch.from_numpy(chosen))
    for row, itself in enumerate(chosen):
        others = np.delete(np.arange(entries), itself)
        index = TorchIndex(dimension, metric, device="cpu")
        index.add(keys[others], others)
        expected = index.search(keys[[itself]], k)
        assert torch.equal(found.ids[row], expected.ids[0])
        assert torch.equal(found.distances[row], expected.distances[0])


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
def test_a_memory_map_is_enough(metric, tmp_path):
    random = np.random.default_rng(0)
    keys = random.standard_normal((5000, 16)).astype(np.float16)
    keys.tofile(tmp_path / "keys")
    queries = random.standard_normal((9, 16)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_module, "CHUNK_BYTES", 4 * 16 * 700)
        found = exact_search(np.memmap(tmp_path / "keys", np.float16, "r", shape=(5000, 16)), queries, 8, metric)
    distances, ids = exact(keys.astype(np.float32), queries, 8, metric)
    assert np.array_equal(found.ids, ids)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-4, atol=1e-5)


def test_no_keys_and_bad_queries():
    found = exact_search(np.empty((0, 4), np.float16), np.ones((2, 4)), 3)
    assert torch.equal(found.ids, torch.full((2, 3), -1))
    assert bool(found.distances.isinf().all())
    with pytest.raises(KnnSeqError, match="dimension 4"):
        exact_search(np.empty((0, 4), np.float16), np.ones((2, 5)), 3)
    with pytest.raises(KnnSeqError, match="k must be"):
        exact_search(np.ones((1, 4), np.float16), np.ones((2, 4)), 0)

"""Candidates ranked by the keys where they lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from knn_seq.errors import KnnSeqError
from knn_seq.index import INDEXES
from knn_seq.index.faiss import FaissIndex
from knn_seq.storage.keys import KeyWriter, open_keys

DIMENSION = 24


@pytest.fixture(params=["float16", "float32"])
def keys(request, tmp_path):
    random = np.random.default_rng(0)
    centres = 2 * random.standard_normal((30, DIMENSION))
    made = (centres[random.integers(30, size=5000)] + random.standard_normal((5000, DIMENSION))).astype(request.param)
    writer, _ = KeyWriter.open_or_create(tmp_path / "keys.h5", made.shape, made.dtype)
    with writer:
        writer.write(0, made)
        writer.finish()
    return open_keys(tmp_path / "keys.h5")


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("recipe", ["IVF16,PQ12x4fs,Refine(keys)", "PQ6,Refine(keys)", "HNSW16,SQ4,Refine(keys)"])
def test_ranking_by_keys_gives_exact_distances_and_more_neighbours(recipe, metric, keys):
    queries = keys[::50].astype(np.float32) + 0.1
    exact = INDEXES.get("torch").build(keys, metric=metric).search(queries, 10)
    rough = FaissIndex.build(keys, recipe.removesuffix(",Refine(keys)"), metric).search(queries, 10)
    ranked = FaissIndex.build(keys, recipe, metric, refine_factor=8).search(queries, 10)
    found = (ranked.ids.unsqueeze(2) == exact.ids.unsqueeze(1)).any(2).float().mean()
    before = (rough.ids.unsqueeze(2) == exact.ids.unsqueeze(1)).any(2).float().mean()
    assert found > max(before, 0.9)
    same = ranked.ids[:, 0] == exact.ids[:, 0]
    assert torch.allclose(ranked.distances[same, 0], exact.distances[same, 0], rtol=1e-4, atol=1e-4)
    assert (ranked.distances.diff(dim=1) >= 0).all()


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_all_candidates_of_all_lists_are_an_exact_search(metric, keys):
    index = FaissIndex.build(keys, "IVF16,PQ12x4fs,Refine(keys)", metric, nprobe=16, refine_factor=1000)
    exact = INDEXES.get("torch").build(keys, metric=metric).search(keys[:100], 7)
    found = index.search(keys[:100], 7)
    assert torch.allclose(found.distances, exact.distances, rtol=1e-4, atol=1e-3)


def test_the_keys_are_not_in_the_index(keys, tmp_path):
    index = FaissIndex.build(keys, "IVF16,PQ12x4fs,Refine(keys)")
    assert index.memory < 20 * len(keys)
    index.save(tmp_path / "index")
    loaded = FaissIndex.load(tmp_path / "index")
    assert loaded.needs_keys
    with pytest.raises(KnnSeqError, match="attach them"):
        loaded.search(keys[:2], 3)
    loaded.attach_keys(keys)
    assert torch.equal(loaded.search(keys[:50], 3).ids, index.search(keys[:50], 3).ids)
    with pytest.raises(KnnSeqError, match="dimension"):
        loaded.attach_keys(keys[:, :5])


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_removed_entries_are_not_found(metric, keys):
    index = FaissIndex.build(keys, "IVF16,PQ12x4fs,Refine(keys)", metric)
    gone = index.search(keys[:20], 1).ids[:, 0]
    assert index.remove(gone) == len(gone.unique())
    found = index.search(keys[:20], 5).ids
    assert not torch.isin(found, gone).any()
    assert (found >= 0).all()


def test_more_neighbours_than_entries(keys):
    index = FaissIndex.build(keys[:300], "IVF2,PQ12x4fs,Refine(keys)", nprobe=2)
    found = index.search(keys[:3], 1000)
    assert (found.ids >= 0).sum(1).tolist() == [300] * 3
    assert found.distances[:, 300:].isinf().all()

"""A query visits the lists that are about as near as its nearest one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from faiss_threads import threads
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import InvalidSetting
from knn_seq.index.base import DESCRIPTION
from knn_seq.index.faiss import ADAPTIVE_NPROBE, DEFAULT_NPROBE, DEFAULT_PROBE_RATIO, FaissIndex
from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.adaptive_probe import MIN_NPROBE, AdaptiveProbe
from knn_seq.index.faiss_library.layers import inverted_lists, transforms

DIMENSION, COUNT = 16, 6000
RECIPES = ("IVF64,Flat", "PCA8,IVF64,Flat", "OPQ4_8,IVF64_HNSW16,Flat")


def clustered(count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(1).standard_normal((80, DIMENSION))
    return (centres[random.integers(80, size=count)] + random.standard_normal((count, DIMENSION))).astype(np.float32)


@pytest.fixture(scope="module", params=RECIPES)
def index(request):
    return FaissIndex.build(clustered(COUNT), request.param)


def searched_one_by_one(
    index: FaissIndex, queries: np.ndarray, k: int, nprobe: int, probe_ratio: float
) -> list[list[int]]:
    """The ids that a slow search of the near lists finds."""
    ivf = inverted_lists(index.index)
    centroids = ivf.quantizer.reconstruct_n(0, ivf.nlist)
    keys, points = clustered(COUNT), queries
    for transform in transforms(index.index):
        keys, points = transform.apply(keys), transform.apply(points)
    list_of = np.square(keys[:, None] - centroids).sum(2).argmin(1)
    found = []
    for point in points:
        far = np.square(centroids - point).sum(1)
        order = np.argsort(far, kind="stable")[:nprobe]
        limit = max(probe_ratio * far[order[0]], far[order[:MIN_NPROBE]].max())
        near = [number for number in order if far[number] <= limit]
        entries = np.flatnonzero(np.isin(list_of, near))
        if len(entries) < k:
            entries = np.flatnonzero(np.isin(list_of, order))
        distances = np.square(keys[entries] - point).sum(1)
        found.append(entries[np.argsort(distances, kind="stable")[:k]].tolist())
    return found


@settings(max_examples=10)
@given(probe_ratio=st.floats(1, 6), k=st.integers(1, 40), nprobe=st.integers(1, 64))
def test_near_lists_are_searched_and_no_others(index, probe_ratio, k, nprobe):
    queries = clustered(60, seed=2)
    found = index.search(queries, k, {"nprobe": nprobe, "probe_ratio": probe_ratio}).ids.tolist()
    expected = searched_one_by_one(index, queries, k, nprobe, probe_ratio)
    # A graph, and rounding at the limit, may choose another list now and then.
    agree = [len(set(first) & set(second)) / k for first, second in zip(found, expected, strict=True)]
    assert np.mean(agree) > (0.97 if "HNSW" in str(index.recipe) else 0.995)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_far_lists_are_not_worth_a_visit(metric):
    keys, queries = clustered(COUNT), clustered(300, seed=2)
    index, exact = (FaissIndex.build(keys, recipe, metric) for recipe in ("IVF128,Flat", "Flat"))
    nearest = exact.search(queries, 16).ids

    def recall(**options) -> float:
        found = index.search(queries, 16, options).ids
        return (found[:, :, None] == nearest[:, None]).any(1).float().mean().item()

    near = {"nprobe": ADAPTIVE_NPROBE, "probe_ratio": DEFAULT_PROBE_RATIO}
    of_length_one = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    visited = AdaptiveProbe(index.index).choose(of_length_one if metric == "cosine" else queries, **near).near.sum(1)
    assert MIN_NPROBE <= visited.min() <= visited.mean() < DEFAULT_NPROBE
    assert recall(**near) > recall(nprobe=DEFAULT_NPROBE) - 0.01


def test_an_nprobe_is_meant_as_it_is(tmp_path):
    keys, queries = clustered(COUNT), clustered(50, seed=2)
    index = FaissIndex.build(keys, "IVF64,Flat")
    index.save(tmp_path)
    for lists in (1, 5, 64):
        loaded = FaissIndex.load(tmp_path, nprobe=lists)
        assert loaded.resolved().nprobe == lists
        found = loaded.search(queries, 10)
        _, ids = loaded.index.search(queries, 10)
        assert (found.ids.numpy() == ids).all()
        assert inverted_lists(loaded.index).nprobe == lists


def test_what_was_saved_with_a_number_of_lists_keeps_it(tmp_path):
    FaissIndex.build(clustered(COUNT), "IVF64,Flat").save(tmp_path)
    description = json.loads((tmp_path / DESCRIPTION).read_text())
    description["options"] = {"nprobe": 32, "ef_search": 128, "refine_factor": 5, "device": None}
    (tmp_path / DESCRIPTION).write_text(json.dumps(description))
    loaded = FaissIndex.load(tmp_path)
    assert loaded.resolved()[:2] == (32, None)


def test_a_probe_ratio_without_limit_is_a_search_of_all_lists():
    keys, queries = clustered(COUNT), clustered(50, seed=2)
    index = FaissIndex.build(keys, "IVF64,PQ8x4fs", nprobe=64, probe_ratio=1e30)
    plain = FaissIndex.build(keys, "IVF64,PQ8x4fs", nprobe=64)
    assert index.search(queries, 20).ids.equal(plain.search(queries, 20).ids)


@pytest.mark.parametrize("recipe", ["IVF64,Flat", "IVF64,PQ8x4fs,Refine(keys)", "PQ8x4fs,Refine(keys)"])
def test_threads_find_what_one_finds(recipe):
    keys, queries = clustered(COUNT), clustered(101, seed=2)
    index = FaissIndex.build(keys, recipe, probe_ratio=DEFAULT_PROBE_RATIO)
    with threads(1):
        alone = index.search(queries, 10)
    with threads(3):
        together = index.search(queries, 10)
        assert faiss.omp_get_max_threads() == 3
    assert together.ids.equal(alone.ids)
    assert together.distances.allclose(alone.distances, rtol=1e-5)


def test_near_lists_with_too_few_entries():
    keys = clustered(COUNT)
    index = FaissIndex.build(keys, "IVF128,Flat", nprobe=128, probe_ratio=1.0)
    found = index.search(clustered(40, seed=2), 1000)
    assert (found.ids >= 0).all()
    exact = FaissIndex.build(keys, "Flat").search(clustered(40, seed=2), 1000)
    assert found.distances.allclose(exact.distances, rtol=1e-4, atol=1e-4)


def test_many_lists_are_searched_where_they_are_near():
    many, few = (FaissIndex(DIMENSION, recipe=f"IVF{lists},Flat") for lists in (512, 256))
    assert many.resolved()[:2] == (ADAPTIVE_NPROBE, DEFAULT_PROBE_RATIO)
    assert few.resolved()[:2] == (DEFAULT_NPROBE, None)


def test_inner_products_have_no_near_lists():
    index = FaissIndex.build(clustered(COUNT), "IVF64,Flat", "ip", probe_ratio=1.5)
    assert index.resolved()[:2] == (DEFAULT_NPROBE, None)
    assert FaissIndex(DIMENSION, recipe="HNSW16", probe_ratio=1.5).resolved().probe_ratio is None


@pytest.mark.parametrize("value", [0.9, 0, -1, "near", float("nan")])
def test_a_bad_probe_ratio(value):
    with pytest.raises(InvalidSetting, match="takes as its option 'probe_ratio' a number from 1 on"):
        FaissIndex(DIMENSION, probe_ratio=value)


@pytest.mark.parametrize("recipe", [*RECIPES, "IVF64,PQ4x4fs,Refine(keys)"])
def test_few_queries_find_what_many_find(recipe):
    keys = clustered(COUNT)
    built = FaissIndex.build(keys, recipe, probe_ratio=1.5, nprobe=24)
    queries = clustered(40, seed=9)
    with threads(1):
        for k in (1, 7, 400):  # the last is more than some near lists have
            many = built.search(queries, k)
            for start, stop in ((0, 1), (3, 8), (11, 19), (39, 40)):
                few = built.search(queries[start:stop], k)
                assert few.ids.tolist() == many.ids[start:stop].tolist()
                np.testing.assert_allclose(few.distances, many.distances[start:stop], rtol=1e-5)

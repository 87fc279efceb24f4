"""Another library in one file."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from test_search_index import exact, vectors

from knn_seq.errors import KnnSeqError
from knn_seq.index.usearch import UsearchIndex
from knn_seq.settings import DISTANCE_METRICS

DIMENSION = 32


@pytest.fixture(scope="module")
def clusters():
    """Keys in 50 clusters, (4000, 32) float16, and 50 queries."""
    random = np.random.default_rng(5)
    centres = 2 * random.standard_normal((50, DIMENSION))
    points = centres[random.integers(50, size=4050)] + random.standard_normal((4050, DIMENSION))
    return points[:4000].astype(np.float16), points[4000:].astype(np.float32)


def recall(index, keys, queries, metric="l2", k=16):
    _, expected = exact(keys, queries, k, metric)
    found = index.search(queries, k).ids.numpy()
    return np.mean([len(set(a) & set(b)) / k for a, b in zip(found, expected, strict=True)])


@pytest.mark.parametrize(
    ("recipe", "metric", "floor"),
    [
        (f"HNSW16,{kind}", metric, 0.9 if kind == "bf16" else 0.95)
        for kind in ("f32", "f16", "bf16")
        for metric in DISTANCE_METRICS
    ]
    + [("HNSW16,i8", "cosine", 0.8), ("HNSW8", "l2", 0.95), (None, "l2", 0.98)],
)
def test_recall_of_a_recipe(clusters, recipe, metric, floor):
    keys, queries = clusters
    assert recall(UsearchIndex.build(keys, recipe, metric), keys, queries, metric) >= floor


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize(("kind", "error"), [("f32", 1e-5), ("f16", 2e-3), ("bf16", 2e-2)])
def test_distances_are_right(clusters, metric, kind, error):
    keys, queries = clusters
    distances, ids = UsearchIndex.build(keys[:500], f"HNSW16,{kind}", metric).search(queries, 8)
    all_distances, order = exact(keys[:500], queries, 500, metric)
    by_id = np.take_along_axis(all_distances, np.argsort(order, axis=1), axis=1)
    scale = 1 if metric == "cosine" else np.abs(by_id).mean()
    np.testing.assert_allclose(distances, np.take_along_axis(by_id, ids.numpy(), axis=1), atol=error * scale)


def test_the_default_is_half_precision(clusters):
    index = UsearchIndex.build(clusters[0][:500])
    assert index.recipe == "HNSW32,f16"
    assert index.memory < UsearchIndex.build(clusters[0][:500], "HNSW32,f32").memory - 500 * DIMENSION


def test_options_reach_the_graph_and_may_change_when_loading(clusters, tmp_path):
    keys, queries = clusters
    index = UsearchIndex.build(keys, "HNSW4,f32", ef_search=1, expansion_add=16)
    index.save(tmp_path)
    loaded = UsearchIndex.load(tmp_path, ef_search=200)
    assert (loaded.index.expansion_add, loaded.index.expansion_search, loaded.index.connectivity) == (16, 200, 4)
    assert recall(loaded, keys, queries, k=2) > recall(index, keys, queries, k=2) + 0.05


@pytest.mark.parametrize("recipe", ["Flat", "HNSW", "HNSW1", "HNSW16,f8", "HNSW16,f16,f16", "hnsw16", "HNSW99999"])
def test_a_bad_recipe_is_named(recipe):
    with pytest.raises(KnnSeqError, match=f"the recipe '{recipe}'"):
        UsearchIndex(DIMENSION, recipe=recipe)


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_directions_have_no_distances(metric):
    with pytest.raises(KnnSeqError, match=f"only directions in i8, not '{metric}'"):
        UsearchIndex(DIMENSION, metric, "HNSW16,i8")


@pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
@pytest.mark.parametrize("option", ["ef_search", "expansion_add"])
def test_options_must_be_numbers_from_one_on(option, value):
    with pytest.raises(KnnSeqError, match=f"takes as its option '{option}' a whole number from 1 on"):
        UsearchIndex(DIMENSION, **{option: value})


@pytest.mark.parametrize("ids", [[5, 6, 5], [5, 3, 6]])
def test_an_id_is_given_once_and_nothing_is_added_by_halves(ids):
    index = UsearchIndex(DIMENSION)
    index.add(vectors(4, DIMENSION))
    with pytest.raises(KnnSeqError, match="id is given twice"):
        index.add(vectors(3, DIMENSION), np.array(ids))
    assert len(index) == 4


def test_too_large_keys_are_refused():
    keys = np.full((1, DIMENSION), 1e5, np.float32)
    with pytest.raises(KnnSeqError, match="too large values for f16"):
        UsearchIndex.build(keys)
    assert UsearchIndex.build(keys, "HNSW16,f32").search(keys, 1).distances.tolist() == [[0]]


def test_a_file_of_another_recipe_is_refused(tmp_path):
    UsearchIndex.build(vectors(20, DIMENSION), "HNSW16,f32").save(tmp_path)
    description = tmp_path / "index.json"
    description.write_text(description.read_text().replace("HNSW16,f32", "HNSW16,f16"))
    with pytest.raises(KnnSeqError, match=r"^/.*index\.usearch is not of 'HNSW16,f16'"):
        UsearchIndex.load(tmp_path)


def test_many_removals_leave_a_good_graph(clusters):
    keys, queries = clusters
    index = UsearchIndex.build(keys)
    assert index.remove(torch.arange(2000)) == 2000
    found = index.search(queries, 16).ids.numpy() - 2000
    _, expected = exact(keys[2000:], queries, 16, "l2")
    assert np.mean([len(set(a) & set(b)) / 16 for a, b in zip(found, expected, strict=True)]) > 0.95


def test_without_the_library_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(KnnSeqError, match=r"pip install knn-seq\[usearch\]"):
        UsearchIndex(DIMENSION)

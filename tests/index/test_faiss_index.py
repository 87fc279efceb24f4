"""Recipes of every kind, on fixed data."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from test_search_index import exact, vectors

from knn_seq.errors import KnnSeqError, NotEnoughMemory
from knn_seq.index import faiss as faiss_index
from knn_seq.index.faiss import ADDING_EF_SEARCH, FaissIndex, faiss
from knn_seq.index.faiss_library.layers import inverted_lists

DIMENSION = 32
ENTRIES = 11_000  # enough for faiss to train 8-bit codes without a warning


@pytest.fixture(scope="module")
def clusters():
    """Keys in 100 clusters, (11000, 32) float16, and 50 queries."""
    random = np.random.default_rng(5)
    centres = 2 * random.standard_normal((100, DIMENSION))
    points = centres[random.integers(100, size=ENTRIES + 50)] + random.standard_normal((ENTRIES + 50, DIMENSION))
    return points[:ENTRIES].astype(np.float16), points[ENTRIES:].astype(np.float32)


def recall(index, keys, queries, metric="l2", k=16):
    found = index.search(queries, k).ids.numpy()
    _, expected = exact(keys, queries, k, metric)
    return np.mean([len(set(a) & set(b)) / k for a, b in zip(found, expected, strict=True)])


@pytest.mark.parametrize(
    ("recipe", "floor"),
    [
        ("SQ8", 0.95),
        ("PQ16", 0.6),
        ("HNSW16", 0.98),
        ("HNSW16,SQ8", 0.95),
        ("IVF64,Flat", 0.98),
        ("IVF64,SQ8", 0.95),
        ("IVF64,PQ16", 0.6),
        ("IVF64_HNSW8,SQ8", 0.95),
        ("IVF64,PQ16x4fs", 0.45),
        ("IVF64,PQ16x4fs,Refine(SQ8)", 0.9),
        ("IVF64,PQ16x4fs,RFlat", 0.9),
        ("PCA24,IVF64,SQ8", 0.6),
        ("SQfp16", 0.99),
        ("IVF64,RaBitQ", 0.4),
        ("IVF64,RaBitQfs", 0.4),
        ("IVF64,RaBitQfs,Refine(keys)", 0.95),
        ("OPQ16,IVF64,PQ16", 0.6),
        ("OPQ8_24,IVF64_HNSW8,PQ8", 0.3),
        ("IVF64,PQ16x4fs,Refine(keys)", 0.95),
        ("PCA16,IVF64,PQ8x4fs,Refine(keys)", 0.8),
        ("IDMap2,Flat", 1.0),
    ],
)
def test_recall_of_a_recipe(clusters, recipe, floor):
    keys, queries = clusters
    assert recall(FaissIndex.build(keys, recipe), keys, queries) >= floor


@pytest.mark.parametrize("metric", ["ip", "cosine"])
@pytest.mark.parametrize(
    ("recipe", "floor"),
    [("HNSW16", 0.95), ("IVF64,SQ8", 0.9), ("IVF64,PQ16", 0.6), ("IVF64,PQ16x4fs,Refine(SQ8)", 0.85)],
)
def test_recall_by_other_metrics(clusters, metric, recipe, floor):
    keys, queries = clusters
    assert recall(FaissIndex.build(keys, recipe, metric), keys, queries, metric) >= floor


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("recipe", ["HNSW16", "IVF64,Flat", "IDMap2,Flat"])
def test_distances_of_uncompressed_recipes_are_right(clusters, recipe, metric):
    keys, queries = clusters
    distances, ids = FaissIndex.build(keys, recipe, metric).search(queries, 8)
    all_distances, order = exact(keys, queries, len(keys), metric)
    by_id = np.take_along_axis(all_distances, np.argsort(order, axis=1), axis=1)
    np.testing.assert_allclose(distances.numpy(), np.take_along_axis(by_id, ids.numpy(), axis=1), atol=1e-4)


def test_pca_survives_the_cosine_and_refuses_inner_products(clusters):
    keys, queries = clusters
    moved = keys + np.float16(3)
    assert recall(FaissIndex.build(moved, "PCA28,Flat", "cosine"), moved, queries + 3, "cosine") >= 0.6
    with pytest.raises(KnnSeqError, match="PCA in 'PCA28,Flat' moves the origin"):
        FaissIndex(DIMENSION, "ip", "PCA28,Flat")


@pytest.mark.parametrize("recipe", ["IVF64,Flat", "PCA32,IVF64,Flat", "IVF64,SQ8,RFlat", "IDMap2,IVF64,Flat"])
def test_nprobe_reaches_wrapped_lists_and_is_capped(recipe):
    keys, queries = vectors(4000, DIMENSION), vectors(50, DIMENSION, seed=1)
    one, all_lists = (FaissIndex.build(keys, recipe, nprobe=lists) for lists in (1, 10_000))
    assert faiss.extract_index_ivf(all_lists.index).nprobe == 64
    assert recall(one, keys, queries) < 0.5
    assert recall(all_lists, keys, queries) > 0.95


@pytest.mark.parametrize("recipe", ["HNSW8", "PCA32,HNSW8", "HNSW8,SQ8"])
def test_ef_search_reaches_graphs(clusters, recipe):
    keys, queries = clusters
    narrow, wide = (FaissIndex.build(keys, recipe, ef_search=ef) for ef in (1, 200))
    assert recall(wide, keys, queries, k=2) > recall(narrow, keys, queries, k=2) + 0.05


def test_ef_search_reaches_the_coarse_quantizer(clusters):
    keys, queries = clusters
    index = FaissIndex.build(keys, "IVF64_HNSW8,SQ8", ef_search=77)
    graph = faiss.downcast_index(faiss.extract_index_ivf(index.index).quantizer)
    assert graph.hnsw.efSearch == ADDING_EF_SEARCH
    index.search(queries, 4)
    assert graph.hnsw.efSearch == 77
    index.add(keys[:5])
    index.search(queries, 4)
    assert graph.hnsw.efSearch == 77


def test_tables_for_searching_are_made_when_it_searches(clusters, tmp_path):
    keys, queries = clusters
    index = FaissIndex.build(keys, "PCA16,IVF64,PQ4")
    index.save(tmp_path)
    to_fill, to_search = (FaissIndex.load(tmp_path, writable=change) for change in (True, False))
    tables = [inverted_lists(each.index).precomputed_table for each in (to_fill, to_search)]
    assert [table.size() > 0 for table in tables] == [False, True]
    assert to_fill.describe() == to_search.describe() == index.describe()
    assert torch.equal(to_fill.search(queries, 5).distances, to_search.search(queries, 5).distances)
    assert tables[0].size() == tables[1].size()
    to_fill.clear()
    assert tables[0].size() == 0
    to_fill.add(keys)
    assert torch.equal(to_fill.search(queries, 5).distances, to_search.search(queries, 5).distances)


def test_the_refine_factor_widens_the_refinement(clusters):
    keys, queries = clusters
    one, eight = (FaissIndex.build(keys, "IVF64,PQ16x4fs,RFlat", refine_factor=factor) for factor in (1, 8))
    assert recall(eight, keys, queries) > recall(one, keys, queries) + 0.1


@pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
def test_options_must_be_numbers_from_one_on(value):
    with pytest.raises(KnnSeqError, match="takes as its option 'nprobe' a whole number from 1 on"):
        FaissIndex(DIMENSION, nprobe=value)


@pytest.mark.parametrize("recipe", ["Flt", "IVF", "PQ7", "IVF0,Flat", "IVF64,PQ16x99", " "])
def test_a_bad_recipe_is_named(recipe):
    with pytest.raises(KnnSeqError, match=f"the recipe '{recipe}'"):
        FaissIndex(DIMENSION, recipe=recipe)


@pytest.mark.parametrize(("recipe", "least"), [("IVF64,Flat", 64), ("PQ16", 256), ("IVF4,PQ16", 256), ("PQ16x4fs", 16)])
def test_too_few_keys_to_train_are_counted(recipe, least):
    with pytest.raises(KnnSeqError, match=f"'{recipe}' needs at least {least} keys to be trained, and there are 15"):
        FaissIndex.build(vectors(15, DIMENSION), recipe)


def test_what_only_faiss_knows_is_a_sentence_too():
    with pytest.raises(KnnSeqError, match="faiss cannot train the recipe 'RQ2x8' on 20 keys"):
        FaissIndex.build(vectors(20, DIMENSION), "RQ2x8")


@pytest.mark.parametrize("recipe", ["PQ4", "PCA16,IVF64,PQ4"])
def test_no_time_goes_into_polysemous_codes(recipe):
    index = FaissIndex.build(vectors(300, DIMENSION), recipe).index
    codes = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
    assert codes.do_polysemous_training is False


@pytest.mark.parametrize(("recipe", "good"), [("IVF4,PQ4x4fs", True), ("RQ2x8", False)])
def test_training_leaves_the_number_of_threads(recipe, good):
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        with nullcontext() if good else pytest.raises(KnnSeqError):
            FaissIndex(DIMENSION, recipe=recipe).train(vectors(200, DIMENSION))
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)


def test_keys_before_training_are_refused():
    with pytest.raises(KnnSeqError, match="'IVF64,Flat' has to be trained before"):
        FaissIndex(DIMENSION, recipe="IVF64,Flat").add(vectors(3, DIMENSION))


def test_a_recipe_that_numbers_by_itself_refuses_other_ids():
    index = FaissIndex(DIMENSION)
    index.add(vectors(3, DIMENSION), np.array([0, 1, 2]))
    with pytest.raises(KnnSeqError, match="use 'IDMap2,Flat' to give them ids"):
        index.add(vectors(3, DIMENSION), np.array([7, 8, 9]))


@pytest.mark.parametrize(
    "recipe", ["IVF4,PQ8x4fs", "IVF4_HNSW8,SQ8", "IVF4,RaBitQ", "IDMap2,SQ8", "IDMap2,PCA16,Flat", "PCA16,IDMap2,Flat"]
)
def test_removing_leaves_the_other_ids(recipe):
    keys = vectors(400, DIMENSION)
    index = FaissIndex.build(keys, recipe, nprobe=4)
    before, gone = index.search(keys, 400), torch.arange(0, 400, 3)
    assert index.remove(gone) == len(gone)
    after = index.search(keys, 400 - len(gone))
    by_id = torch.zeros(400, 400).scatter(1, before.ids, before.distances)
    by_id[:, gone] = torch.inf
    torch.testing.assert_close(torch.full((400, 400), torch.inf).scatter(1, after.ids, after.distances), by_id)


@pytest.mark.parametrize("recipe", ["Flat", "SQ8", "PQ4x4fs", "PCA16,Flat"])
def test_a_recipe_that_would_renumber_removes_nothing(recipe):
    index = FaissIndex.build(vectors(50, DIMENSION), recipe)
    with pytest.raises(KnnSeqError, match=f"cannot remove entries without .*: use 'IDMap2,{recipe}'"):
        index.remove(np.array([3]))
    assert len(index) == 50


@pytest.mark.parametrize(
    ("recipe", "advice"),
    [
        ("HNSW8", "build the index again"),
        ("IDMap2,HNSW8", "build the index again"),
        ("IVF4,Flat,RFlat", "build the index again"),
        ("IDMap2,IVF4,Flat", "leave out 'IDMap'"),
    ],
)
def test_what_faiss_cannot_remove_from_is_refused(recipe, advice):
    index = FaissIndex.build(vectors(50, DIMENSION), recipe)
    with pytest.raises(KnnSeqError, match=f"'{recipe}' cannot remove entries: {advice}"):
        index.remove(np.array([3]))
    assert len(index) == 50


@pytest.mark.parametrize("recipe", ["IVF64,PQ16x4fs,Refine(SQ8)", "HNSW16,SQ8", "PCA16,IVF64,SQ8", "IDMap2,Flat"])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_saved_recipe_is_the_same(clusters, tmp_path, monkeypatch, recipe, mapped):
    keys, queries = clusters
    index = FaissIndex.build(keys, recipe, nprobe=5)
    index.save(tmp_path)
    if mapped:
        monkeypatch.setattr(faiss_index, "MAPPED_BYTES", 0)
    loaded = FaissIndex.load(tmp_path)
    assert loaded.options["nprobe"] == 5
    assert all(map(torch.equal, loaded.search(queries, 20), index.search(queries, 20)))
    if mapped:
        with pytest.raises(KnnSeqError, match="mapped from disk cannot grow"):
            loaded.add(keys[:1])
        with pytest.raises(KnnSeqError, match="mapped from disk cannot shrink"):
            loaded.remove(np.array([1]))


def test_search_options_may_change_when_loading(clusters, tmp_path):
    keys, queries = clusters
    FaissIndex.build(keys, "IVF64,Flat", nprobe=1).save(tmp_path)
    assert recall(FaissIndex.load(tmp_path, nprobe=64), keys, queries) > recall(
        FaissIndex.load(tmp_path), keys, queries
    )


def test_a_mapped_file_of_something_else_is_refused(tmp_path, monkeypatch):
    FaissIndex.build(vectors(50, DIMENSION)).save(tmp_path)
    path = tmp_path / "index.faiss"
    path.write_bytes(b"x" * path.stat().st_size)
    monkeypatch.setattr(faiss_index, "MAPPED_BYTES", 0)
    with pytest.raises(KnnSeqError, match=r"faiss cannot read .*index\.faiss"):
        FaissIndex.load(tmp_path)


@pytest.mark.parametrize("recipe", ["Flat", "IVF64,SQ8", "IVF64,PQ16x4fs,Refine(SQ8)"])
def test_building_is_deterministic(clusters, recipe):
    keys, queries = clusters
    first, second = (FaissIndex.build(keys, recipe).search(queries, 20) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_the_sample_is_random(clusters, monkeypatch):
    keys, _ = clusters
    monkeypatch.setattr(faiss_index, "training_size", lambda recipe, entries: 2500)
    first, again, other = (FaissIndex.build(keys, "IVF64,Flat", sample_seed=seed) for seed in (0, 0, 1))
    centroids = [index.index.quantizer.reconstruct_n(0, 64) for index in (first, again, other)]
    assert np.array_equal(centroids[0], centroids[1])
    assert not np.array_equal(centroids[0], centroids[2])


def test_the_sample_is_not_the_beginning():
    # Two halves far apart: only a sample of both puts centroids into both.
    keys = np.concatenate([vectors(20_000, 8), vectors(20_000, 8) + 50])
    index = FaissIndex.build(keys, "IVF16,Flat")
    centroids = index.index.quantizer.reconstruct_n(0, 16)
    assert 4 <= (centroids.mean(axis=1) > 25).sum() <= 12


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_keys_may_be_a_read_only_memory_map(tmp_path, clusters, dtype):
    keys, queries = clusters
    np.save(tmp_path / "keys.npy", keys.astype(dtype))
    mapped = np.load(tmp_path / "keys.npy", mmap_mode="r")
    index = FaissIndex.build(mapped, "IVF64,SQ8")
    assert all(map(torch.equal, index.search(queries, 9), FaissIndex.build(keys, "IVF64,SQ8").search(queries, 9)))


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("Flat", 4 * DIMENSION),
        ("SQ8", DIMENSION),
        ("IVF64,SQ8", DIMENSION + 8 + 64 * 4 * DIMENSION / ENTRIES),
        ("IVF64,PQ16x4fs,Refine(SQ8)", 8 + 8 + DIMENSION + 64 * 4 * DIMENSION / ENTRIES),
        ("IDMap2,Flat", 4 * DIMENSION + 8),
    ],
)
def test_memory_is_counted(clusters, recipe, expected):
    index = FaissIndex.build(clusters[0], recipe)
    assert index.memory / ENTRIES == pytest.approx(expected, abs=0.01)


def test_memory_is_about_the_size_of_the_file(clusters, tmp_path):
    index = FaissIndex.build(clusters[0], "HNSW16,SQ8")
    index.save(tmp_path)
    assert index.memory == pytest.approx((tmp_path / "index.faiss").stat().st_size, rel=0.1)


def test_a_sample_that_memory_makes_too_small_is_told_of():
    keys = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    index = FaissIndex(8, "l2", "IVF4,PQ4x4")
    with pytest.raises(NotEnoughMemory, match=r"to train the index .* holds .* of the 2,000 keys"):
        index.train_on_sample(keys, memory=1_000)
    index.train_on_sample(keys, memory=10_000_000)
    assert index.index.is_trained


def test_a_file_that_does_not_fit_into_memory_is_not_called_damaged(tmp_path, monkeypatch):
    index = FaissIndex.build(np.eye(8, dtype=np.float32), "Flat")
    index.save(tmp_path)
    monkeypatch.setattr("knn_seq.index.faiss.available_memory", lambda: 100)

    def no_memory(*_):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(FaissIndex, "_read", no_memory)
    with pytest.raises(MemoryError, match="bad_alloc"):
        FaissIndex.load(tmp_path)

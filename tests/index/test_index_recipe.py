from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import KnnSeqError
from knn_seq.index import default_recipe, training_size
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.recipe import FLAT_ENTRIES, lists_for, paper_recipe


@pytest.mark.parametrize(
    ("entries", "dimension", "recipe"),
    [
        (0, 256, "Flat"),
        (FLAT_ENTRIES, 1024, "Flat"),
        (FLAT_ENTRIES + 1, 256, "OPQ64_128,IVF128,PQ64x4fs,Refine(keys)"),
        (1_000_000, 64, "IVF2048,PQ32x4fs,Refine(keys)"),
        (1_000_000, 63, "IVF2048,SQ8,Refine(keys)"),
        (1_000_000, 512, "OPQ64_128,IVF2048,PQ64x4fs,Refine(keys)"),
        (1_000_000, 255, "OPQ62_124,IVF2048,PQ62x4fs,Refine(keys)"),
        (1_000_000_000, 1024, "OPQ64_128,IVF65536_HNSW32,PQ64x4fs,Refine(keys)"),
    ],
)
def test_the_recipe_fits_the_size(entries, dimension, recipe):
    assert default_recipe(entries, dimension) == recipe


@pytest.mark.parametrize(
    ("gigabytes", "recipe"),
    [
        (45, "OPQ64_128,IVF65536_HNSW32,PQ64x4fs,Refine(keys)"),
        (30, "OPQ32_64,IVF65536_HNSW32,PQ32x4fs,Refine(keys)"),
        (10, "OPQ32_128,IVF65536_HNSW32,PQ32,Refine(keys)"),
    ],
)
def test_the_recipe_fits_the_memory(gigabytes, recipe):
    assert default_recipe(10**9, 1024, memory=gigabytes * 10**9) == recipe


def test_what_cannot_be_projected_stays_on_the_disk_when_it_is_too_large():
    recipe = default_recipe(10**8, 512, "ip", memory=10**9)
    assert FaissIndex(512, "ip", recipe).can_stay_on_disk


def test_keys_are_not_projected_for_inner_products():
    assert default_recipe(10**6, 512, "ip") == "IVF2048,PQ256x4fs,Refine(keys)"


@settings(deadline=None)
@given(
    st.integers(0, 10**10),
    st.integers(1, 8192),
    st.sampled_from(["l2", "ip", "cosine"]),
    st.none() | st.integers(10**6, 10**12),
)
def test_faiss_makes_every_default_recipe(entries, dimension, metric, memory):
    index = FaissIndex(dimension, metric, default_recipe(entries, dimension, metric, memory))
    assert len(index) == 0


@pytest.mark.parametrize(
    ("settings", "recipe"),
    [
        ({"ivf_lists": 4096, "hnsw_edges": 32, "pq_subspaces": 64, "opq": True}, "OPQ64,IVF4096_HNSW32,PQ64"),
        ({"ivf_lists": 1024, "pq_subspaces": 64}, "IVF1024,PQ64"),
        ({"pq_subspaces": 8, "opq": True, "transformed_dimension": 32}, "OPQ8_32,PQ8"),
        ({"ivf_lists": 64, "pca": True, "transformed_dimension": 16}, "PCA16,IVF64,Flat"),
        ({"hnsw_edges": 32}, "HNSW32"),
        ({"hnsw_edges": 32, "pq_subspaces": 8}, "HNSW32,PQ8"),
        ({}, "Flat"),
    ],
)
def test_the_parts_that_papers_name_make_a_recipe(settings, recipe):
    assert paper_recipe(**settings) == recipe
    assert FaissIndex(64, recipe=recipe).recipe == recipe


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"opq": True}, "number of PQ subspaces"),
        ({"opq": True, "pca": True, "pq_subspaces": 8, "transformed_dimension": 8}, "choose one"),
        ({"pca": True}, "give both"),
        ({"transformed_dimension": 8}, "give both"),
    ],
)
def test_parts_that_do_not_fit_together(settings, reason):
    with pytest.raises(KnnSeqError, match=reason):
        paper_recipe(**settings)


@given(st.integers(1, 10**10))
def test_lists_are_a_power_of_two_and_filled(entries):
    lists = lists_for(entries)
    assert lists & (lists - 1) == 0
    assert entries / 2 <= lists**2 <= 8 * entries


@given(st.integers(FLAT_ENTRIES + 1, 10**10), st.sampled_from([255, 256, 1024]))
def test_faiss_has_no_reason_to_warn(entries, dimension):
    size = training_size(default_recipe(entries, dimension), entries)
    assert 39 * lists_for(entries) <= size <= entries


@pytest.mark.parametrize(
    ("recipe", "entries", "size"),
    [
        ("IVF1024,SQ8", 10**6, 40_960),
        ("OPQ64,IVF4k_HNSW32,PQ64", 10**6, 163_840),
        ("PQ64", 10**6, 20_000),
        ("PQ64", 500, 500),
    ],
)
def test_the_sample_grows_with_the_lists(recipe, entries, size):
    assert training_size(recipe, entries) == size


def test_the_default_recipe_finds_most_neighbours(capfd):
    random = np.random.default_rng(0)
    centres = 2 * random.standard_normal((300, 32))
    keys = (centres[random.integers(300, size=21_000)] + random.standard_normal((21_000, 32))).astype(np.float16)
    index, exact = FaissIndex.build(keys), FaissIndex.build(keys, "Flat")
    assert index.recipe == "IVF128,PQ16x4fs,Refine(keys)"
    found, expected = (made.search(keys[:200], 16).ids for made in (index, exact))
    assert (found.unsqueeze(1) == expected.unsqueeze(2)).any(dim=2).float().mean() > 0.95
    assert "WARNING" not in capfd.readouterr().err

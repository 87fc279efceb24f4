from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.index import default_recipe, training_size
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.recipe import FLAT_ENTRIES, lists_for


@pytest.mark.parametrize(
    ("entries", "dimension", "recipe"),
    [
        (0, 256, "Flat"),
        (FLAT_ENTRIES, 1024, "Flat"),
        (FLAT_ENTRIES + 1, 256, "IVF128,PQ128x4fs,Refine(SQ8)"),
        (1_000_000, 512, "IVF1024,PQ256x4fs,Refine(SQ8)"),
        (1_000_000, 511, "IVF1024,SQ8"),
        (1_000_000_000, 1024, "IVF32768,PQ512x4fs"),
    ],
)
def test_the_recipe_fits_the_size(entries, dimension, recipe):
    assert default_recipe(entries, dimension) == recipe


@settings(deadline=None)
@given(st.integers(0, 10**10), st.integers(1, 8192))
def test_faiss_makes_every_default_recipe(entries, dimension):
    index = FaissIndex(dimension, recipe=default_recipe(entries, dimension))
    assert len(index) == 0


@given(st.integers(1, 10**10))
def test_lists_are_a_power_of_two_and_filled(entries):
    lists = lists_for(entries)
    assert lists & (lists - 1) == 0
    assert lists**2 <= 2 * entries
    assert entries <= 2 * lists**2


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
    assert index.recipe == "IVF128,PQ16x4fs,Refine(SQ8)"
    found, expected = (made.search(keys[:200], 16).ids for made in (index, exact))
    assert (found.unsqueeze(1) == expected.unsqueeze(2)).any(dim=2).float().mean() > 0.85
    assert "WARNING" not in capfd.readouterr().err

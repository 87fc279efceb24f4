"""Plans tell what building then makes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import UserError
from knn_seq.index import METRICS, default_recipe
from knn_seq.index.cost import SAMPLE, Costs, measure_costs, with_lists
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.plan import INDEX_SHARE, MEASURED_RECALL, expected_recall, make_plan

KIND, (MEASURED_DIMENSION, MEASURED) = next(iter(MEASURED_RECALL.items()))
LARGEST = max(MEASURED)


@pytest.mark.parametrize(
    "recipe",
    [
        "Flat",
        "SQ8",
        "PQ16",
        "IVF64,SQ8",
        "IVF64,PQ16",
        "PCA16,IVF64,PQ8x4fs,Refine(keys)",
        "OPQ8_16,IVF64_HNSW8,PQ8",
        "HNSW16",
        "IVF64,RaBitQ",
        "IVF64,PQ16x4fs,Refine(SQ8)",
    ],
)
def test_the_size_is_that_of_the_file(recipe, tmp_path):
    keys = np.random.default_rng(0).standard_normal((20_000, 32)).astype(np.float16)
    index = FaissIndex.build(keys, recipe)
    index.save(tmp_path)
    size = sum(file.stat().st_size for file in tmp_path.glob("index.faiss"))
    plan = make_plan(20_000, 32, recipe=recipe, memory=10**9, measure=False)
    assert plan.recipe == recipe
    assert plan.index_bytes == pytest.approx(size, rel=0.08)  # half-filled blocks of fast-scan codes
    assert plan.translating_memory == pytest.approx(index.memory, rel=0.05)


@settings(deadline=None, max_examples=60)
@given(
    entries=st.integers(1, 10**10),
    dimension=st.sampled_from([1, 31, 64, 256, 1024]),
    metric=st.sampled_from(METRICS),
    memory=st.integers(10**6, 10**12),
    dtype=st.sampled_from(["float16", "float32"]),
)
def test_a_plan_adds_up(entries, dimension, metric, memory, dtype):
    plan = make_plan(entries, dimension, metric, memory, dtype, measure=False)
    assert plan.recipe == default_recipe(entries, dimension, metric, int(INDEX_SHARE * memory))
    assert plan.keys_bytes == entries * dimension * int(dtype.removeprefix("float")) // 8
    assert plan.disk_bytes == plan.keys_bytes + plan.values_bytes + plan.index_bytes
    assert 4 * entries <= plan.values_bytes <= 5 * entries + 8
    assert plan.index_bytes >= plan.bytes_per_token * entries - 1
    if plan.lists_on_disk:
        assert "fs" not in plan.recipe
        assert plan.fits
    elif plan.fits:
        assert plan.translating_memory <= memory
    assert plan.index_seconds is plan.keys_seconds is None


def test_lists_stay_on_disk_only_if_they_must_and_can():
    sizes = {"entries": 10**8, "dimension": 256, "measure": False}
    assert not make_plan(**sizes, memory=10**11, recipe="IVF8192,PQ64").lists_on_disk
    spilled = make_plan(**sizes, memory=4 * 10**9, recipe="IVF8192,PQ64")
    assert spilled.lists_on_disk
    assert spilled.fits
    assert spilled.translating_memory < 10**9 < spilled.index_bytes
    for recipe in ("IVF8192,PQ128x4fs", "HNSW32", "Flat"):
        refused = make_plan(**sizes, memory=4 * 10**9, recipe=recipe)
        assert not refused.lists_on_disk
        assert not refused.fits


def test_recall_lies_on_the_measured_points_and_between_them():
    recipes = [KIND.replace("IVF", lists) for lists in ("IVF512", "IVF4k", "IVF32768_HNSW32")]
    for recipe in recipes:
        for entries, recall in MEASURED.items():
            assert expected_recall(recipe, entries) == (pytest.approx(recall), LARGEST, MEASURED_DIMENSION)
    sizes = sorted(MEASURED)
    middle = round(math.sqrt(sizes[0] * sizes[1]))
    mean = (MEASURED[sizes[0]] + MEASURED[sizes[1]]) / 2
    assert expected_recall(recipes[0], middle)[0] == pytest.approx(mean, abs=1e-4)
    assert expected_recall(recipes[0], 1)[0] == MEASURED[sizes[0]]
    # As far beyond the last as the one before the last lies before it.
    beyond = round(sizes[-1] ** 2 / sizes[-2])
    assert expected_recall(recipes[0], beyond)[0] == pytest.approx(2 * MEASURED[sizes[-1]] - MEASURED[sizes[-2]])
    assert 0 <= expected_recall(recipes[0], 10**30)[0] <= 1
    assert expected_recall("Flat", 10**9) == (1.0, None, None)
    assert expected_recall("IVF64,PQ2", 10**6) == (None, None, None)


def test_extrapolations_are_called_so():
    recipe = KIND.replace("IVF", "IVF1024")

    def extrapolated(entries, dimension):
        return make_plan(entries, dimension, recipe=recipe, memory=10**12, measure=False).recall_is_extrapolated

    assert not extrapolated(LARGEST, MEASURED_DIMENSION)
    assert extrapolated(LARGEST + 1, MEASURED_DIMENSION)
    assert extrapolated(LARGEST, 2 * MEASURED_DIMENSION)


def test_costs_grow_as_the_work_does():
    costs = Costs(learn=2.0, encode=3e-6, compare=1e-9, step=1e-6, write=1e-9)
    assert costs.adding("IVF1000,PQ8", 10**6) == pytest.approx(4.0)
    assert costs.adding("IVF1024_HNSW32,PQ8", 10**6) == pytest.approx(13.0)
    assert costs.adding("HNSW32", 1 << 20) == pytest.approx((1 << 20) * 23e-6)
    assert costs.adding("SQ8", 10**6) == pytest.approx(3.0)
    assert costs.training("IVF1000,PQ8", 10**6) == pytest.approx(11 * 40_000 * 1000 * 1e-9 + 2 * 40_000 / SAMPLE)
    assert costs.training("PQ8", 10**6) == pytest.approx(2 * 20_000 / SAMPLE)
    assert Costs(encode=1.0).training("Flat", 10**6) == 0
    assert costs.writing(10**9) == pytest.approx(1.0)


def test_other_lists():
    assert with_lists("OPQ64,IVF4k_HNSW32,PQ64", 8) == "OPQ64,IVF8_HNSW32,PQ64"


@pytest.mark.parametrize(
    ("recipe", "zero"),
    [
        ("Flat", {"learn", "compare", "step"}),
        ("HNSW8", {"learn", "compare", "encode"}),
        ("SQ8", {"compare", "step"}),
        ("IVF4096,PQ4", {"step"}),
        ("PCA8,IVF4096_HNSW8,PQ4x4fs,Refine(keys)", set()),
    ],
)
def test_what_costs_nothing(recipe, zero, tmp_path, capfd):
    costs = measure_costs(recipe, 16, folder=tmp_path)
    assert all(getattr(costs, name) == 0 for name in zero)
    assert all(getattr(costs, name) > 0 for name in {"learn", "compare", "step", "write"} - zero)
    assert costs.encode >= 0
    assert not list(tmp_path.iterdir())
    assert not capfd.readouterr().err


def test_a_measured_plan_tells_times():
    plan = make_plan(10**6, 16, recipe="IVF1024,PQ4", memory=10**9, key_rate=1000.0)
    assert plan.keys_seconds == pytest.approx(1000.0)
    assert plan.index_seconds == pytest.approx(plan.training_seconds + plan.adding_seconds + plan.writing_seconds)
    assert min(plan.training_seconds, plan.adding_seconds, plan.writing_seconds) > 0
    assert make_plan(10**6, 16, memory=10**9, measure=False, key_rate=500.0).keys_seconds == pytest.approx(2000.0)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((0, 256), {}, "at least 1 key"),
        ((10, 0), {}, "at least 1 key"),
        ((10, 256), {"key_dtype": "int8"}, "int8"),
        ((10, 256), {"recipe": "IVF,Nonsense"}, "IVF,Nonsense"),
        ((10, 256), {"metric": "taxicab", "recipe": "Flat"}, "taxicab"),
        ((10, 256), {"recipe": "PCA64,Flat", "metric": "ip"}, "origin"),
    ],
)
def test_what_cannot_be_planned(arguments, options, sentence):
    with pytest.raises(UserError, match=sentence):
        make_plan(*arguments, memory=10**9, measure=False, **options)

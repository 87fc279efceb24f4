"""Plans tell what building then makes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import KnnSeqError
from knn_seq.index import default_recipe
from knn_seq.index.faiss import FaissIndex
from knn_seq.plan.cost import Costs, Job, Search
from knn_seq.plan.plan import INDEX_SHARE, MEASURED_RECALL, expected_recall, make_plan
from knn_seq.settings import DISTANCE_METRICS

KIND, BY_DIMENSION = next(iter(MEASURED_RECALL.items()))
MEASURED_DIMENSION, MEASURED = next(iter(BY_DIMENSION.items()))
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
    metric=st.sampled_from(DISTANCE_METRICS),
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
    assert plan.index_seconds is plan.keys_seconds is plan.search_seconds is None
    assert plan.peak_disk_bytes >= plan.disk_bytes + plan.text_bytes[1]


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
            assert expected_recall(recipe, entries, MEASURED_DIMENSION) == (
                pytest.approx(recall),
                LARGEST,
                MEASURED_DIMENSION,
            )
    sizes = sorted(MEASURED)
    middle = round(math.sqrt(sizes[0] * sizes[1]))
    mean = (MEASURED[sizes[0]] + MEASURED[sizes[1]]) / 2
    assert expected_recall(recipes[0], middle, MEASURED_DIMENSION)[0] == pytest.approx(mean, abs=1e-4)
    assert expected_recall(recipes[0], 1, MEASURED_DIMENSION)[0] == MEASURED[sizes[0]]
    # As far beyond the last as the one before the last lies before it.
    beyond = round(sizes[-1] ** 2 / sizes[-2])
    assert expected_recall(recipes[0], beyond, MEASURED_DIMENSION)[0] == pytest.approx(
        2 * MEASURED[sizes[-1]] - MEASURED[sizes[-2]]
    )
    assert 0 <= expected_recall(recipes[0], 10**30, MEASURED_DIMENSION)[0] <= 1
    assert expected_recall("Flat", 10**9, MEASURED_DIMENSION) == (1.0, None, None)
    assert expected_recall("IVF64,PQ2", 10**6, MEASURED_DIMENSION) == (None, None, None)


def test_recall_is_that_of_the_nearest_dimension():
    recipe = KIND.replace("IVF", "IVF1024")
    for dimension, measured in BY_DIMENSION.items():
        entries, recall = max(measured.items())
        for near in (dimension, dimension + 1, dimension - 1):
            assert expected_recall(recipe, entries, near) == (pytest.approx(recall), entries, dimension)


def test_extrapolations_are_called_so():
    recipe = KIND.replace("IVF", "IVF1024")

    def extrapolated(entries, dimension):
        return make_plan(entries, dimension, recipe=recipe, memory=10**12, measure=False).recall_is_extrapolated

    assert not extrapolated(LARGEST, MEASURED_DIMENSION)
    assert extrapolated(LARGEST + 1, MEASURED_DIMENSION)
    assert extrapolated(LARGEST, 2 * MEASURED_DIMENSION)


def test_a_measured_plan_tells_times():
    plan = make_plan(10**6, 16, recipe="IVF1024,PQ4", memory=10**9, key_rate=1000.0)
    steps = (plan.training_seconds, plan.adding_seconds, plan.merging_seconds, plan.writing_seconds)
    assert plan.keys_seconds == pytest.approx(1000.0)
    assert plan.index_seconds == pytest.approx(sum(steps))
    assert min(*steps, plan.search_seconds) > 0
    assert plan.search_seconds <= plan.batch_seconds
    assert make_plan(10**6, 16, memory=10**9, measure=False, key_rate=500.0).keys_seconds == pytest.approx(2000.0)


COSTS = Costs(**dict.fromkeys(Costs.__dataclass_fields__, 1e-9))


def test_a_plan_is_the_model_of_cost():
    plan = make_plan(10**7, 256, memory=10**11, costs=COSTS, cores=4, key_rate=10_000.0)
    job = Job.of(10**7, 256, plan.recipe)
    assert plan.training_seconds == pytest.approx(COSTS.training(job, 4))
    assert plan.adding_seconds == pytest.approx(COSTS.adding(job, 4))
    assert plan.merging_seconds == pytest.approx(COSTS.merging(job))
    assert plan.writing_seconds == pytest.approx(2e-9 * plan.index_bytes)
    assert plan.search_seconds == pytest.approx(COSTS.searching(job, Search(1), 4))
    assert plan.batch_seconds == pytest.approx(COSTS.searching(job, Search(160), 4))
    assert plan.keys_in_memory == 1
    assert plan.peak_disk_bytes == plan.disk_bytes + 15 * 10**7 + plan.index_bytes


def test_workers_share_keys_and_adding_and_nothing_else():
    sizes = {"entries": 10**7, "dimension": 256, "memory": 10**11, "costs": COSTS, "key_rate": 10_000.0}
    alone, four = make_plan(**sizes), make_plan(**sizes, workers=4)
    shared = ("keys_seconds", "adding_seconds")
    for name in shared:
        assert getattr(four, name) == pytest.approx(getattr(alone, name) / 4)
    for name in ("training_seconds", "merging_seconds", "writing_seconds", "search_seconds", "batch_seconds"):
        assert getattr(four, name) == getattr(alone, name)
    # However many there are, the disk takes the keys no faster.
    assert make_plan(**sizes, workers=10**6).keys_seconds == pytest.approx(1e-9 * alone.keys_bytes)


def test_keys_that_do_not_fit_come_from_the_disk():
    sizes = {"entries": 10**8, "dimension": 256, "recipe": "IVF8192,PQ32x4fs,Refine(keys)", "costs": COSTS, "cores": 2}
    all_there, some, few = (make_plan(**sizes, memory=memory) for memory in (10**11, 3 * 10**10, 4 * 10**9))
    assert all_there.keys_in_memory == 1 > some.keys_in_memory > few.keys_in_memory >= 0
    assert all_there.search_seconds < some.search_seconds < few.search_seconds
    assert some.keys_in_memory == pytest.approx((3 * 10**10 - some.translating_memory) / some.keys_bytes)


def test_lists_on_the_disk_are_kept_in_memory_before_keys():
    sizes = {"entries": 10**8, "dimension": 256, "recipe": "IVF8192,PQ64,Refine(keys)", "costs": COSTS, "cores": 2}
    none, lists, both = (make_plan(**sizes, memory=memory) for memory in (10**9, 9 * 10**9, 10**11))
    assert none.lists_on_disk
    assert lists.lists_on_disk
    assert not both.lists_on_disk
    assert none.keys_in_memory == 0 < lists.keys_in_memory < both.keys_in_memory == 1
    assert none.search_seconds > lists.search_seconds > both.search_seconds
    job = Job.of(10**8, 256, none.recipe)
    some = (10**9 - none.translating_memory) / none.index_bytes
    expected = COSTS.searching(job, Search(1, in_memory=0.0, lists_in_memory=some), 2)
    assert none.search_seconds == pytest.approx(expected)


def test_small_indexes_have_no_parts():
    small = make_plan(50_000, 256, memory=10**10, costs=COSTS, recipe="IVF128,PQ32")
    assert (small.parts_bytes, small.merging_seconds) == (0, 0)
    graph = make_plan(10**7, 16, memory=10**11, costs=COSTS, recipe="HNSW8")
    assert (graph.parts_bytes, graph.merging_seconds) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((0, 256), {}, "at least 1 key"),
        ((10, 0), {}, "at least 1 key"),
        ((10, 256), {"key_dtype": "int8"}, "int8"),
        ((10, 256), {"workers": 0}, "at least 1 worker"),
        ((10, 256), {"recipe": "IVF,Nonsense"}, "IVF,Nonsense"),
        ((10, 256), {"metric": "taxicab", "recipe": "Flat"}, "taxicab"),
        ((10, 256), {"recipe": "PCA64,Flat", "metric": "ip"}, "origin"),
    ],
)
def test_what_cannot_be_planned(arguments, options, sentence):
    with pytest.raises(KnnSeqError, match=sentence):
        make_plan(*arguments, memory=10**9, measure=False, **options)

"""Work counted by formulas is work counted step by step; constants come out of times as they went in."""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import KnnSeqError
from knn_seq.index.base import CHUNK_BYTES
from knn_seq.index.budget import part_entries
from knn_seq.index.recipe import default_recipe
from knn_seq.plan.cost import Costs, Job, Observation, Search, fit, measure_costs
from knn_seq.plan.cost.fit import SEARCHING
from knn_seq.plan.cost.measure import with_lists
from knn_seq.quantize.kmeans import ITERATIONS

NAMES = [field.name for field in fields(Costs)]
RECIPES = [
    "Flat",
    "SQ8",
    "HNSW8",
    "IVF64,PQ4",
    "IVF64_HNSW8,PQ4",
    "PCA8,IVF64,PQ4x4fs,Refine(keys)",
    "OPQ4_8,IVF64_HNSW8,PQ4x4fsr,Refine(keys)",
]
constants = st.builds(Costs, **{name: st.floats(0, 1e-3) for name in NAMES})


@pytest.mark.parametrize(
    ("recipe", "facts"),
    [
        ("Flat", {"lists": 0, "sample": 0, "code_bytes": 128, "transformed": 32, "mergeable": False}),
        ("SQ8", {"lists": 0, "sample": 20_000, "code_bytes": 32, "code_words": 1}),
        ("HNSW8", {"lists": 0, "graph": True, "ranked": False}),
        ("IVF64,PQ8", {"lists": 64, "subspaces": 8, "code_words": 256, "code_bytes": 8, "fast_scan": False}),
        (
            "PCA16,IVF1k,PQ8x4fs,Refine(keys)",
            {"lists": 1024, "transformed": 16, "code_words": 16, "code_bytes": 4, "sample": 40_960, "rotated": False},
        ),
        (
            "OPQ8_16,IVF64_HNSW8,PQ8x4fsr,Refine(keys)",
            {"graph": True, "transformed": 16, "ranked": True, "fast_scan": True, "rotated": True, "mergeable": True},
        ),
    ],
)
def test_a_job_knows_its_recipe(recipe, facts):
    job = Job.of(10**6, 32, recipe)
    assert {name: getattr(job, name) for name in facts} == facts


def counted_adding(job: Job) -> dict[str, int]:
    """Every key by itself."""
    done = {"multiply": 0, "encode": 0}
    for _ in range(job.entries):
        for _ in range(job.transformed):
            done["multiply"] += job.dimension if job.transformed != job.dimension else 0
        for _ in range(job.lists):
            done["multiply"] += job.transformed
        done["encode"] += job.dimension  # every number is read and converted ...
        for _ in range(job.code_words):
            done["encode"] += job.transformed  # ... and every subspace compared with all its words
    return done


def counted_search(job: Job, search: Search, cores: int) -> dict[str, float]:
    """Queries dealt out to cores one by one; the core with the most of them is the last to finish."""
    of_cores = [[] for _ in range(cores)]
    for query in range(search.queries):
        of_cores[query % cores].append(query)
    keys_of_list = job.entries // job.lists
    done = dict.fromkeys(("call", "load", "compare", "walk", "visit", "scan", "rank", "locate", "fetch"), 0.0)
    done["call"] = 1
    cold = [1.0] * job.lists  # how likely it is that no query has visited a list
    for _ in max(of_cores, key=len):
        done["compare"] += job.dimension * job.transformed if job.transformed != job.dimension else 0
        for _ in range(job.lists):
            done["compare"] += job.transformed
        for _ in range(search.nprobe):
            done["visit"] += job.subspaces * job.code_words
            for _ in range(keys_of_list):
                done["scan"] += job.code_bytes
        cold = [chance * (1 - search.nprobe / job.lists) for chance in cold]
        for candidate in range(search.k * search.refine_factor if job.ranked else 0):
            done["rank"] += job.dimension
            done["locate"] += math.log2(job.entries)
            done["fetch"] += candidate >= search.in_memory * search.k * search.refine_factor
    done["load"] = sum((1 - chance) * keys_of_list * job.code_bytes + 4 * job.transformed for chance in cold)
    return done


@pytest.mark.parametrize("recipe", ["IVF16,PQ4", "PCA8,IVF16,PQ4x4fs,Refine(keys)"])
def test_work_is_what_is_done_step_by_step(recipe):
    job = Job.of(640, 16, recipe)
    assert {name: count for name, count in job.adding().items() if count} == counted_adding(job)
    for queries, cores, nprobe, share in ((1, 1, 1, 1.0), (5, 2, 4, 0.5), (160, 7, 16, 0.0)):
        search = Search(queries, k=4, nprobe=nprobe, refine_factor=2, in_memory=share)
        assert job.searching(search, cores) == pytest.approx(counted_search(job, search, cores))


def test_lists_that_many_queries_visit_are_loaded_once():
    job, random = Job.of(64_000, 16, "IVF64,PQ4"), np.random.default_rng(0)
    for queries in (1, 5, 40):
        visited = [
            len({int(each) for _ in range(queries) for each in random.choice(64, 8, replace=False)}) for _ in range(500)
        ]
        expected = np.mean(visited) / 64 * 64_000 * job.code_bytes + 4 * 64 * 16
        assert job.searching(Search(queries, nprobe=8), 1)["load"] == pytest.approx(expected, rel=0.02)


def test_lists_on_the_disk_come_piece_by_piece():
    short, long = Job.of(64_000, 16, "IVF64,PQ4"), Job.of(64 * 100_000, 16, "IVF64,PQ4")  # 4 and 400 KB a list
    search = Search(6, nprobe=8, lists_in_memory=0.25)
    assert short.searching(search, 2)["fetch"] == 3 * 8 * 0.75
    assert long.searching(search, 2)["fetch"] == 3 * 8 * 0.75 * 4
    assert long.searching(Search(6), 2)["fetch"] == 0


def test_training_work():
    job = Job.of(10**6, 32, "PCA16,IVF1024,PQ8x4fs")
    iterations = sum(1 for _ in range(ITERATIONS)) + 1  # and the seeding
    assert job.training() == {
        "rotate": 0,
        "cluster": iterations * 40_960 * 1024 * 16,
        "learn": 4096 * 16 * 16,  # 256 keys for each word of a subspace
        "multiply": 40_960 * 32 * 16,
        "step": 0,
    }
    assert Job.of(10**6, 32, "OPQ8_16,IVF1024,PQ8").training()["rotate"] == 16_384 * 32 * 16
    assert Job.of(10**6, 32, "IVF1024,PQ8").training()["learn"] == 40_960 * 256 * 32
    assert set(Job.of(10**6, 32, "Flat").training().values()) == {0}


def test_a_graph_is_walked_and_lists_are_not_compared():
    job = Job.of(1 << 20, 16, "IVF1024_HNSW8,PQ4")
    assert job.adding()["multiply"] == job.searching(Search(), 1)["compare"] == 0
    assert job.adding()["step"] == (1 << 20) * 16 * 10
    assert job.searching(Search(6), 2)["walk"] == 3 * 16 * 10
    assert job.training()["step"] == 1024 * 16 * 10
    alone = Job.of(1 << 20, 16, "HNSW8")
    assert alone.adding()["step"] == (1 << 20) * 16 * 20
    assert alone.searching(Search(), 1)["scan"] == 0


def test_without_lists_everything_is_scanned():
    assert Job.of(1000, 16, "SQ8").searching(Search(3), 1)["scan"] == 3 * 1000 * 16
    few = Job.of(1000, 16, "IVF8,SQ8").searching(Search(nprobe=100), 1)
    assert few["scan"] == 1000 * 16
    assert few["visit"] == 8


def test_a_search_is_as_thorough_as_the_index_if_nothing_is_said():
    job = Job.of(10**6, 32, "IVF1024,PQ8x4fs,Refine(keys)")
    said = Search(nprobe=job.nprobe, refine_factor=job.refine_factor)
    assert job.searching(Search(), 2) == job.searching(said, 2)
    assert job.searching(Search(nprobe=1), 2)["scan"] < job.searching(Search(), 2)["scan"]


def test_more_cores_help_only_with_what_is_shared_out():
    for name in NAMES:
        costs = Costs(**{name: 2.0})
        assert costs.seconds({name: 12}) == 24
        assert costs.seconds({name: 12}, cores=4) == (24 if name in ("call", "fetch", "merge", "write") else 6)


@settings(deadline=None, max_examples=60)
@given(
    costs=constants,
    recipe=st.sampled_from(RECIPES),
    entries=st.integers(1000, 10**10),
    more=st.integers(0, 10**10),
    cores=st.integers(1, 64),
)
def test_more_keys_never_cost_less(costs, recipe, entries, more, cores):
    small, large = Job.of(entries, 16, recipe), Job.of(entries + more, 16, recipe)
    assert costs.training(small, cores) <= costs.training(large, cores)
    assert costs.adding(small, cores) <= costs.adding(large, cores) * (1 + 1e-9)
    assert costs.merging(small) <= costs.merging(large) * (1 + 1e-9)
    assert costs.searching(small, Search(5), cores) <= costs.searching(large, Search(5), cores) * (1 + 1e-9)
    for name in ("keys_bytes", "values_bytes", "text_bytes", "index_bytes", "memory", "training_memory"):
        assert getattr(small, name) <= getattr(large, name)
    assert small.building_memory(10**9) <= large.building_memory(10**9)


@settings(deadline=None, max_examples=60)
@given(
    costs=constants,
    recipe=st.sampled_from(RECIPES),
    queries=st.integers(1, 200),
    nprobe=st.integers(1, 64),
    factor=st.integers(1, 16),
    share=st.floats(0, 1),
    cores=st.integers(1, 64),
)
def test_a_more_thorough_search_never_costs_less(costs, recipe, queries, nprobe, factor, share, cores):
    job, search = Job.of(10**6, 16, recipe), Search(queries, 64, nprobe, factor, share)
    seconds = costs.searching(job, search, cores)
    for change in (
        {"queries": queries + 3},
        {"nprobe": nprobe + 1},
        {"refine_factor": factor + 1},
        {"k": 65},
        {"in_memory": share / 2},
        {"lists_in_memory": share},
    ):
        assert seconds <= costs.searching(job, replace(search, **change), cores) * (1 + 1e-9)
    assert costs.searching(job, search, cores + 1) <= seconds
    assert costs.adding(job, cores, workers=3) == pytest.approx(costs.adding(job, cores) / 3)


TRUE = Costs(
    cluster=1e-11,
    rotate=2e-9,
    multiply=2e-11,
    step=3e-9,
    encode=4e-10,
    compare=5e-11,
    visit=6e-10,
    scan=7e-11,
    rank=8e-10,
    call=1e-4,
    load=9e-11,
    locate=1e-8,
)


def searched(sizes, costs, noise=0.0, seed=0):
    random, found = np.random.default_rng(seed), []
    for entries in sizes:
        job = Job.of(entries, 256, default_recipe(entries, 256))
        for queries in (1, 5, 160):
            for nprobe, factor in ((32, 8), (8, 8), (128, 8), (32, 2)):
                work = job.searching(Search(queries, nprobe=nprobe, refine_factor=factor), 2)
                found.append(Observation(work, costs.seconds(work) * math.exp(noise * random.standard_normal())))
    return found


def built(sizes, costs):
    jobs = [Job.of(entries, 256, default_recipe(entries, 256)) for entries in sizes]
    jobs += [Job.of(300_000, 256, "OPQ64_128,IVF1024_HNSW32,PQ64x4fs")]
    adding = [Observation(job.adding(), costs.adding(job, 2), 2) for job in jobs]
    return adding, [Observation(job.training(), costs.training(job, 2), 2) for job in jobs]


def test_a_fit_finds_the_constants_that_made_the_times():
    sizes = (100_000, 300_000, 1_000_000, 3_000_000)
    adding, training = built(sizes, TRUE)
    found = fit(adding, ["multiply", "encode", "step"])
    found = fit(training, ["cluster", "rotate"], found)
    found = fit(searched(sizes, TRUE), SEARCHING, found)
    assert asdict(found) == pytest.approx(asdict(TRUE), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_a_fit_of_small_sizes_predicts_large_ones(seed):
    found = fit(searched((100_000, 300_000, 1_000_000, 3_000_000), TRUE, noise=0.05, seed=seed), SEARCHING)
    for entries in (10_000_000, 20_000_000):
        job = Job.of(entries, 256, default_recipe(entries, 256))
        for queries in (1, 160):
            expected = TRUE.searching(job, Search(queries), 2)
            assert found.searching(job, Search(queries), 2) == pytest.approx(expected, rel=0.15)


@settings(deadline=None, max_examples=50)
@given(data=st.data(), names=st.integers(1, 4), rows=st.integers(1, 8))
def test_a_fit_is_never_negative_and_no_other_is_better(data, names, rows):
    names = NAMES[:names]
    numbers = st.floats(0.01, 100)
    seen = [
        Observation({name: data.draw(numbers) for name in names}, data.draw(numbers), data.draw(st.integers(1, 4)))
        for _ in range(rows)
    ]

    def error(costs):
        return sum((costs.seconds(each.work, each.cores) / each.seconds - 1) ** 2 for each in seen)

    found = fit(seen, names)
    assert min(asdict(found).values()) >= 0
    for name in names:
        value = getattr(found, name)
        for other in (0.0, 0.5 * value, 0.99 * value, 1.01 * value, value + 1e-3, value + 1.0):
            assert error(found) <= error(found.known({name: other})) + 1e-7


def test_what_is_known_stays_and_is_taken_into_account():
    known = Costs(multiply=1.0, write=5.0)
    found = fit([Observation({"multiply": 3.0, "encode": 2.0}, 7.0)], ["encode"], known)
    assert found == Costs(multiply=1.0, write=5.0, encode=2.0)
    assert fit([Observation({"multiply": 3.0, "encode": 2.0}, 2.0)], ["encode"], known).encode == 0
    assert fit([], ["encode"], known) == known


def test_costs_are_read_again():
    assert Costs.from_dict(asdict(TRUE)) == TRUE
    with pytest.raises(KnnSeqError, match="not the costs"):
        Costs.from_dict({"cluster": 1.0})


def test_parts_are_neither_too_many_nor_too_large():
    assert part_entries(90_000, 40, 10**10) >= 90_000
    assert part_entries(10**6, 40, 10**10) == 125_000
    assert part_entries(20 * 10**6, 40, 10**10) == 2 * 10**6
    assert part_entries(10**9, 40, 10**12) == 10**9 // 64
    assert part_entries(10**9, 40, 10**8) * 40 <= 0.25 * 10**8
    assert part_entries(10, 10**6, 1) == 1


def test_memory_of_building():
    job = Job.of(10**8, 256, "IVF8192,PQ64x4fs")
    assert job.building_memory(10**12) == job.memory + 3 * CHUNK_BYTES  # the whole index, and keys on their way to it
    lists = Job.of(10**8, 256, "IVF8192,PQ64")
    assert lists.building_memory(10**9, on_disk=True) < 10**9 < lists.building_memory(10**9)
    small = Job.of(30_000, 256, "IVF128,PQ64x4fs")
    assert small.building_memory(10**12) == small.training_memory == 6 * 4 * 256 * 20_000
    assert small.building_memory(10**7) < 5 * 10**6


def test_other_lists():
    assert with_lists("OPQ64,IVF4k_HNSW32,PQ64", 8) == "OPQ64,IVF8_HNSW32,PQ64"


@pytest.mark.parametrize(
    ("recipe", "positive"),
    [
        ("Flat", {"encode"}),
        ("HNSW8", {"step", "walk"}),
        ("SQ8", {"learn", "encode"}),
        ("IVF4096,PQ4", {"learn", "cluster", "multiply", "merge"}),
        ("OPQ4_8,IVF4096_HNSW8,PQ4x4fs,Refine(keys)", {"rotate", "cluster", "multiply", "step", "merge"}),
    ],
)
def test_what_is_measured_is_what_the_recipe_needs(recipe, positive, tmp_path, capfd):
    costs = measure_costs(recipe, 16, folder=tmp_path)
    assert min(asdict(costs).values()) >= 0
    assert all(getattr(costs, name) > 0 for name in positive | {"write", "fetch"})
    assert costs.searching(Job.of(10**6, 16, recipe), Search(), 1) > 0
    needed = {name for name, count in Job.of(10**6, 16, recipe).adding().items() if count}
    for name in ("multiply", "step", "encode"):
        assert name in needed or getattr(costs, name) == 0
    assert not list(tmp_path.iterdir())
    assert not capfd.readouterr().err

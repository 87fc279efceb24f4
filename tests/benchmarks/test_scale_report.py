"""The tables of docs/scale.md, made of runs whose times are known beforehand."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
from figures import replace_place
from scale_report import BATCHES, CONSTANTS, PAPER, Check, draw, evaluate, tables

from knn_seq.index.recipe import default_recipe
from knn_seq.plan.cost import Costs, Job, Search

TRUE = Costs(
    cluster=1e-11,
    rotate=2e-9,
    multiply=2e-11,
    step=3e-9,
    encode=4e-10,
    compare=5e-11,
    walk=4e-9,
    visit=6e-10,
    scan=7e-11,
    rank=8e-10,
    call=1e-4,
    load=9e-11,
    reach=1e-8,
    fetch=1e-3,
    merge=1e-9,
    write=2e-9,
)
CONDITIONS = {"cores": 2}


def run(entries, dimension=256, recipe=None, costs=TRUE):
    recipe = recipe or default_recipe(entries, dimension)
    job = Job.of(entries, dimension, recipe)
    searches = []
    for why, nprobe, factor in (("default", 32, 8), ("other", 8, 8), ("other", 128, 8), ("other", 32, 2)):
        for queries in BATCHES:
            seconds = costs.searching(job, Search(queries, nprobe=nprobe, refine_factor=factor), 2)
            options = {"queries": queries, "nprobe": nprobe, "refine_factor": factor}
            searches.append({**options, "seconds": seconds, "why": why})
    return {
        "keys": entries,
        "dimension": dimension,
        "recipe": recipe,
        "training": costs.training(job, 2),
        "adding": costs.adding(job, 2),
        "merging": costs.merging(job),
        "writing": costs.writing(job.index_bytes),
        "written": job.index_bytes,
        "parts": 2,
        "bytes": job.index_bytes,
        "building_memory": job.building_memory(1 << 50),
        "searches": searches,
    }


def graph(entries, lists):
    return run(entries, recipe=re.sub(r"IVF\d+", f"IVF{lists}_HNSW32", default_recipe(entries, 256)))


@pytest.fixture
def report():
    sizes = (30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
    runs = [*map(run, sizes), graph(100_000, 1024), graph(300_000, 4096), graph(1_000_000, 16_384)]
    rates = {"firefox:pt-en": 9000.0, "Transformer-big": 300.0}
    report = {
        "conditions": CONDITIONS,
        "key_rates": rates,
        "fetch": 1e-3,
        "runs": [*runs, run(300_000, 1024)],
    }
    return report | evaluate(report)


def test_constants_are_found_and_predict_what_they_were_not_fitted_on(report):
    assert report["costs"] == pytest.approx(asdict(TRUE), rel=1e-4)
    checks = [Check(**each) for each in report["checks"]]
    assert max(abs(check.error) for check in checks) < 1e-4
    unseen = {check.run for check in checks if not check.fitted}
    assert {name.split(",")[0] for name in unseen} == {
        "30 k keys × 256",
        "10 M keys × 256",
        "1 M keys × 256",
        "300 k keys × 1024",
    }
    assert not any("1 M" in name and "HNSW" not in name for name in unseen)


def test_one_size_is_always_left_to_check():
    runs = [run(size) for size in (100_000, 300_000, 1_000_000)]
    report = {"conditions": CONDITIONS, "runs": runs, "fetch": 0.0}
    assert {each["run"] for each in evaluate(report)["checks"] if not each["fitted"]} == {"1 M keys × 256, IVF2048"}


def test_an_index_that_takes_longer_than_predicted_shows(report):
    large = report["runs"][5]
    large["adding"] *= 2
    adding = next(
        Check(**each)
        for each in evaluate(report)["checks"]
        if each["run"].startswith("10 M") and each["what"].startswith("adding")
    )
    assert adding.error == pytest.approx(-0.5, abs=1e-3)


def test_every_table_has_its_place(report):
    document = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    for name, text in tables(report).items():
        document = replace_place(document, name, text)
    assert "to fill this in" not in document
    assert all(f"| `{name}` |" in document for name in CONSTANTS)
    assert "| 10 B |" in document
    total = sum(without for without, _ in PAPER.values())
    assert f"**{total:,.0f}** (2.21 h)" in document


def test_every_constant_is_explained():
    assert list(CONSTANTS) == list(asdict(Costs()))


def test_the_picture_is_the_same_each_time(report, tmp_path):
    for name in ("a.svg", "b.svg"):
        draw(report, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "160 queries" in (tmp_path / "a.svg").read_text()

"""knn-seq plan prints what the model of cost says."""

from __future__ import annotations

import json

COMMAND = ("plan", "--tokens", "1e6", "--dim", 16, "--memory-limit", "64MB", "--index-recipe", "IVF64,PQ4")


def test_times_of_building_and_searching_are_told(knn_seq):
    code, out, err = knn_seq(*COMMAND)
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    for step in ("training", "adding", "merging", "writing the index"):
        assert step in lines["time"]
    assert "then a combiner is trained" in lines["time"]
    assert "ms for 1 query" in lines["search"]
    assert "ms for 160 at once" in lines["search"]
    assert "come from the disk" not in lines["search"]
    assert "while it is built" in lines["disk"]
    assert "to build the index" in lines["memory"]


def test_workers(knn_seq):
    code, out, err = knn_seq(*COMMAND, "--workers", 4, "--key-rate", "10k", "--json")
    assert code == 0, err
    plan = json.loads(out)
    assert (plan["workers"], plan["keys_seconds"]) == (4, 25.0)
    assert plan["peak_disk_bytes"] > plan["disk_bytes"]
    out = knn_seq(*COMMAND, "--workers", 4)[1]
    assert "4 workers like this machine share keys and adding, and nothing else gets shorter" in out
    assert "workers" not in knn_seq(*COMMAND)[1]


def test_keys_on_the_disk_are_named(knn_seq):
    out = knn_seq(
        "plan",
        "--tokens",
        "20M",
        "--dim",
        16,
        "--memory-limit",
        "600MB",
        "--index-recipe",
        "IVF64,PQ4x4fs,Refine(keys)",
    )[1]
    assert "% of the keys do not fit" in out


def test_bad_numbers(knn_seq):
    for options, words in (
        (("--workers", 0), "at least 1 worker"),
        (("--key-rate", "fast"), "is no count"),
    ):
        code, _, err = knn_seq(*COMMAND, *options)
        assert code == 2
        assert words in err
        assert len(err.splitlines()) == 1

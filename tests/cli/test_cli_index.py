"""The commands that plan, build, check and remove indexes."""

from __future__ import annotations

import json
import shutil

import pytest

from knn_seq.datastore import Datastore
from knn_seq.index import open_index
from knn_seq.models import load_model
from knn_seq.plan.key_rate import measure_key_rate
from knn_seq.settings import ModelSettings


@pytest.fixture
def store(number_store, tmp_path):
    """A copy that may be changed."""
    return Datastore(shutil.copytree(number_store.path, tmp_path / "store"))


def names(store):
    manifest = Datastore(store.path).manifest
    return list(manifest.indexes), manifest.default_index


def test_indexes_live_beside_each_other(knn_seq, store):
    code, out, err = knn_seq("index", store.path, "--index-recipe", "IVF4,Flat", "-q")
    assert (code, out) == (0, ""), err
    assert names(store) == (["default", "IVF4,Flat"], "default")
    code, out, err = knn_seq(
        "index", store.path, "--index-recipe", "HNSW8", "--distance-metric", "cosine", "--name", "graph"
    )
    assert code == 0, err
    assert out.startswith("graph: faiss HNSW8, cosine, ")
    assert "keys" in err

    code, out, _ = knn_seq("index", store.path)
    lines = out.splitlines()
    assert code == 0
    assert [line.split(": ")[0] for line in lines] == ["default (default)", "IVF4,Flat", "graph"]
    assert all("bytes a key" in line and "in memory" in line for line in lines)

    opened = open_index(Datastore(store.path), "graph")
    assert (opened.recipe, opened.metric, len(opened)) == ("HNSW8", "cosine", len(store))
    (store.path.parent / "in.txt").write_text("5 6 7\n")
    translate = ("translate", store.path, "--input", store.path.parent / "in.txt", "-q", "--max-length", 9)
    default = knn_seq(*translate)
    assert default[0] == 0
    assert knn_seq(*translate, "--index", "IVF4,Flat", "--index-option", "nprobe=4")[1] == default[1]


def test_the_default_index_changes_and_others_are_removed(knn_seq, store):
    assert knn_seq("index", store.path, "--index-recipe", "SQ8", "--as-default", "-q")[0] == 0
    assert names(store) == (["default", "SQ8"], "SQ8")
    code, _, err = knn_seq("index", store.path, "--remove", "SQ8")
    assert (code, "is the default index" in err) == (2, True)
    assert knn_seq("index", store.path, "--name", "default", "--as-default")[0] == 0
    assert names(store) == (["default", "SQ8"], "default")
    code, out, _ = knn_seq("index", store.path, "--remove", "SQ8")
    assert (code, out) == (0, f"The index 'SQ8' of {store.path} is removed.\n")
    assert names(store) == (["default"], "default")
    assert not (store.path / "index" / "SQ8").exists()
    assert (store.path / "index" / "default").exists()
    assert knn_seq("index", store.path, "--remove", "SQ8")[0] == 2


def test_an_index_by_its_parts(knn_seq, store):
    options = ("--ivf-lists", 4, "--hnsw-edges", 8, "--pq-subspaces", 4, "--opq", "--transformed-dimension", 16)
    code, _, err = knn_seq("index", store.path, *options, "--name", "paper", "-q")
    assert code == 0, err
    assert Datastore(store.path).manifest.indexes["paper"].recipe == "OPQ4_16,IVF4_HNSW8,PQ4"


def test_check(knn_seq, store):
    code, out, err = knn_seq("index", store.path, "--check", "-k", 5, "--queries", 40, "-q")
    assert (code, err) == (0, "")
    assert out.startswith(f"recall@5 1.0000 on 40 queries out of {len(store):,} keys\n")
    assert "ms a query" in out
    assert knn_seq("index", store.path, "--index-recipe", "IVF16,Flat", "--name", "lists", "-q")[0] == 0

    def recall(*options):
        code, out, err = knn_seq("index", store.path, "--check", "--name", "lists", "-q", *options)
        assert code == 0, err
        return float(out.split()[1])

    assert recall("--index-option", "nprobe=1") < recall("--index-option", "nprobe=16") == 1.0


def test_build_and_check_at_once(knn_seq, store):
    code, out, err = knn_seq(
        "index", store.path, "--index-recipe", "auto", "--name", "auto", "--check", "--memory-limit", "1GB"
    )
    assert code == 0, err
    assert "recall@64 1.0000" in out
    assert "exact search" in err


def test_plan(knn_seq):
    command = ("plan", "--tokens", "1e6", "--dim", 16, "--memory-limit", "64MB", "--index-recipe", "IVF64,PQ4")
    code, out, err = knn_seq(*command)
    assert (code, err) == (0, "")
    assert "IVF64,PQ4" in out
    assert "12 bytes a token" in out
    assert "1,000,000 tokens, keys 16 × float16" in out
    assert "adding" in out
    assert "--model measures the keys" in out
    assert "knn-seq index STORE --check" in out
    plan = json.loads(knn_seq(*command, "--json")[1])
    assert plan["keys_bytes"] == 32 * 10**6
    assert plan["disk_bytes"] == plan["keys_bytes"] + plan["values_bytes"] + plan["index_bytes"]
    assert plan["recall"] is None
    assert plan["keys_seconds"] is None
    assert plan["index_seconds"] > 0


def test_plan_with_a_model(knn_seq, save_model):
    code, out, err = knn_seq("plan", "--tokens", "10k", "--model", save_model(), "--json")
    assert code == 0, err
    plan = json.loads(out)
    assert (plan["dimension"], plan["recipe"], plan["recall"]) == (32, "Flat", 1.0)
    assert plan["keys_seconds"] > 0


@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_the_rate_of_keys_is_that_of_the_model(save_model, kind):
    model = load_model(ModelSettings(save_model(kind)))
    assert measure_key_rate(model, seconds=0.01) > 1


def test_what_does_not_fit_is_said(knn_seq):
    sizes = ("plan", "--tokens", "20M", "--dim", 16, "--memory-limit", "64MB", "--index-recipe")
    assert "TOO MUCH for the budget of 64 MB" in knn_seq(*sizes, "SQ8")[1]
    assert "the lists stay on disk" in knn_seq(*sizes, "IVF64,SQ8")[1]
    assert "within the budget" in knn_seq("plan", "--tokens", 900, "--dim", 16, "--memory-limit", "64MB")[1]


def test_bad_input_is_one_sentence_and_exit_code_2(knn_seq, save_model, store, tmp_path):
    plan = ("plan", "--tokens", "1e6")
    cases = [
        (("plan", "--dim", 16), "--tokens"),
        (plan, "--dim, or --model"),
        (("plan", "--tokens", "lots", "--dim", 16), "is no count"),
        ((*plan, "--dim", 16, "--memory-limit", "big"), "is no size"),
        ((*plan, "--dim", 0), "at least 1 key"),
        ((*plan, "--dim", 16, "--index-recipe", "IVF,Nonsense"), "IVF,Nonsense"),
        ((*plan, "--dim", 16, "--model", save_model()), "dimension 32, not 16"),
        ((*plan, "--model", "martian:x"), "no model backend 'martian'"),
        (("index", tmp_path), "is not a datastore"),
        (("index", tmp_path / "none", "--check"), "is not a datastore"),
        (("index", tmp_path / "none", "--index-recipe", "Flat"), "is not a datastore"),
        (("index", tmp_path / "none", "--remove", "x"), "is not a datastore"),
        (("index", store.path, "--index-recipe", "IVF,Nonsense"), "IVF,Nonsense"),
        (("index", store.path, "--index-recipe", "Flat", "--name", "../x"), "cannot be called"),
        (("index", store.path, "--index-recipe", "IVF4,Flat", "--ivf-lists", 4), "both describe the index"),
        (("index", store.path, "--ivf-lists", 0), "at least 1"),
        (("index", store.path, "--opq"), "PQ subspaces"),
        (("index", store.path, "--index-recipe", "Flat", "--memory-limit", "big"), "is no size"),
        (("index", store.path, "--memory-limit", "1GB"), "give --index-recipe, too"),
        (("index", store.path, "--as-default"), "give its name"),
        (("index", store.path, "--as-default", "--name", "x"), "no index 'x'"),
        (("index", store.path, "--check", "--name", "x"), "no index 'x'"),
        (("index", store.path, "--check", "-k", 0), "at least 1"),
        (("index", store.path, "--check", "--index-option", "nprobe=0"), "'nprobe' a whole number from 1 on"),
        (("index", store.path, "--check", "--index-option", "nprobes=1"), "has no option 'nprobes'"),
        (("index", store.path, "--check", "--index-option", "device=cpu"), "only when it is built"),
        (("index", store.path, "--remove", "x"), "no index 'x'"),
        (("index", store.path, "--remove", "default", "--check"), "give it alone"),
        (("index", store.path, "--remove", "default"), "is the default index"),
    ]
    for arguments, sentence in cases:
        code, out, err = knn_seq(*arguments, *(["-q"] if arguments[0] == "index" else []))
        assert code == 2, (arguments, out, err)
        assert sentence in err, (arguments, err)
        assert err.startswith("knn-seq: ")
        assert err.count("\n") == 1, (arguments, err)
        assert not out
    assert names(store) == (["default"], "default")
    assert sorted(path.name for path in (store.path / "index").iterdir() if path.name[0] != ".") == ["default"]
    assert not (tmp_path / "none").exists()

"""knn-seq evaluate with several systems."""

from __future__ import annotations

import json
import shutil

import pytest

from knn_seq.build.subset import prepare_subset
from knn_seq.cli.systems import parse_systems
from knn_seq.datastore import Datastore
from knn_seq.decoding import store_settings
from knn_seq.errors import KnnSeqError
from knn_seq.models import load_model
from knn_seq.settings import BuildSettings, SearchSettings


@pytest.fixture(scope="module")
def store(number_store, tmp_path_factory):
    """A datastore with subsets, and with settings that were tuned for them."""
    path = tmp_path_factory.mktemp("evaluate") / "store"
    shutil.copytree(number_store.path, path)
    prepare_subset(path, load_model(number_store.model_settings), BuildSettings(sentence_search="bm25"))
    store = Datastore(path)
    tuned = SearchSettings(retriever="subset", subset_size=9, k=3, temperature=7.0)
    store_settings(store, tuned, as_default=False)
    return store


@pytest.fixture(scope="module")
def held_out(tmp_path_factory, number_corpus):
    path = tmp_path_factory.mktemp("test") / "test.tsv"
    path.write_text("".join(number_corpus.read_text().splitlines(keepends=True)[:10]))
    return path


def test_systems_side_by_side(knn_seq, store, held_out, tmp_path):
    systems = ("full", "subset", "subset,subset-size=5,weight=0.25", "copy: k=1,weight=1,temperature=1,beam_size=2")
    code, out, err = knn_seq(
        "evaluate",
        *(store.path, "--test", held_out, "--json", tmp_path / "figures.json", "--metrics", "chrF", "-q"),
        *(part for system in systems for part in ("--system", system)),
        *("--beam-size", 1, "--max-length", 8, "--confidence-threshold", 0.9),
    )
    assert code == 0, err
    assert [line.split("  ")[0] for line in out.splitlines()[1:-1]] == ["base", *systems[:3], "copy"]
    report = json.loads((tmp_path / "figures.json").read_text())
    assert report["datastore"] == str(store.path)
    assert report["decoding"]["beam_size"] == 1
    assert report["sentences"] == 10
    assert list(report["signatures"]) == ["chrF"]
    settings = {system["name"]: system["settings"] for system in report["systems"]}
    assert settings["base"] == {"weight": 0.0}
    own = store.search_settings
    common = {"combiner": "fixed", "confidence_threshold": 0.9}
    assert settings["full"] == common | {
        "retriever": "full",
        "k": own.k,
        "temperature": own.temperature,
        "weight": own.weight,
    }
    tuned = common | {"retriever": "subset", "subset_size": 9, "k": 3, "temperature": 7.0, "weight": 0.5}
    assert settings["subset"] == tuned
    assert settings[systems[2]] == tuned | {"subset_size": 5, "weight": 0.25}
    assert settings["copy"] == settings["full"] | {"k": 1, "weight": 1.0, "temperature": 1.0, "beam_size": 2}
    base, *others = report["systems"]
    assert "bleu" not in base
    for system in others:
        assert system["p_values"].keys() == {"chrf"}
        assert sum(system["shares"].values()) == pytest.approx(1, abs=1e-3)
        assert len(system["translations"]) == 10
    assert others[-1]["changed"] > 0.2
    assert others[-1]["chrf"] > base["chrf"] + 10


def test_without_systems_the_search_options_hold(knn_seq, store, held_out, tmp_path):
    code, _, err = knn_seq(
        "evaluate",
        *(store.path, "--test", held_out, "--json", tmp_path / "figures.json", "-q"),
        *("--retriever", "subset", "-k", 2, "--beam-size", 1, "--max-length", 4),
    )
    assert code == 0, err
    base, knn = json.loads((tmp_path / "figures.json").read_text())["systems"]
    assert (base["name"], knn["name"]) == ("base", "knn")
    assert knn["settings"] == {
        "retriever": "subset",
        "combiner": "fixed",
        "subset_size": 9,
        "k": 2,
        "temperature": 7.0,
        "weight": 0.5,
    }


def test_how_systems_are_written():
    assert parse_systems(["full", " memory,subset_size=8 ", "a b:k=2, weight = 0.5", "n 64: subset,sample=True"]) == {
        "full": {"retriever": "full"},
        "memory,subset_size=8": {"retriever": "memory", "subset_size": 8},
        "a b": {"k": 2, "weight": 0.5},
        "n 64": {"retriever": "subset", "sample": True},
    }
    # Indexes are named after their recipes, which have commas and may have colons.
    assert parse_systems(["index=IVF64,PQ16,Refine(keys),index.nprobe=4", "index=usearch:f16,k=3"]) == {
        "index=IVF64,PQ16,Refine(keys),index.nprobe=4": {
            "index": "IVF64,PQ16,Refine(keys)",
            "index_options": {"nprobe": "4"},
        },
        "index=usearch:f16,k=3": {"index": "usearch:f16", "k": 3},
    }


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["k=many"], "k must be a whole number, not 'many'"),
        (["k=2,weight"], "k must be a whole number, not '2,weight'"),
        (["weight=half"], "weight must be a number, not 'half'"),
        (["sample=perhaps"], "sample must be true or false, not 'perhaps'"),
        (["neighbours=3"], "There is no setting 'neighbours': choose from"),
        (["k=2,k=3"], "says k twice"),
        (["full,retriever=subset"], "says retriever twice"),
        (["base: k=3"], "The name 'base' is the model's own"),
        (["x: k=3", "x: k=4"], "Two systems are called 'x'"),
    ],
)
def test_systems_that_make_no_sense(texts, sentence):
    with pytest.raises(KnnSeqError, match=sentence):
        parse_systems(texts)


def test_bad_input_is_one_sentence_and_exit_code_2_before_anything_is_translated(
    knn_seq, store, number_store, held_out, tmp_path
):
    (tmp_path / "folder").mkdir()
    given = ("evaluate", store.path, "--test", held_out)
    cases = [
        ((*given, "--json", tmp_path / "no" / "x.json"), "does not exist"),
        ((*given, "--html", tmp_path / "no" / "x.html"), "does not exist"),
        ((*given, "--html", tmp_path / "folder"), "it is a folder"),
        ((*given, "--metrics", "bleu,meteor"), "no metric 'meteor'"),
        ((*given, "--metrics", ""), "no metrics ''"),
        ((*given, "--comet-model", "x"), "name it among --metrics"),
        ((*given, "--system", "k=many"), "k must be a whole number"),
        ((*given, "--system", "k=0"), "K must be at least 1"),
        ((*given, "--system", "beam_size=0"), "beam size must be at least 1"),
        ((*given, "--system", "nowhere"), "no retrieve 'nowhere'"),
        ((*given, "--system", ""), "no retrieve ''"),
        ((*given, "--system", "combiner=nobody"), "no combine 'nobody'"),
        ((*given, "--system", "index=none"), "has no index 'none'"),
        ((*given, "--system", "memory"), "memory"),
        (("evaluate", number_store.path, "--test", held_out, "--system", "subset"), "not prepared for subset search"),
    ]
    for arguments, sentence in cases:
        code, out, err = knn_seq(*arguments)  # not quiet: progress of a translation would be a second line
        assert code == 2, (arguments, err)
        assert sentence in err, (arguments, err)
        assert err.startswith("knn-seq: ")
        assert err.count("\n") == 1, (arguments, err)
        assert not out


def test_the_report_is_written(knn_seq, store, held_out, tmp_path):
    code, _, err = knn_seq(
        "evaluate",
        *(store.path, "--test", held_out, "--html", tmp_path / "report.html", "--system", "near <b>: k=2"),
        *("--beam-size", 1, "--max-length", 6, "-q"),
    )
    assert code == 0, err
    page = (tmp_path / "report.html").read_text()
    assert "near &lt;b&gt;" in page
    assert f"store on {held_out.name}" in page

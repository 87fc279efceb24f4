"""knn-seq evaluate with several systems."""

from __future__ import annotations

import json
import shutil

import pytest

from knn_seq.cli.systems import parse_systems
from knn_seq.datastore import Datastore
from knn_seq.decoding import store_settings
from knn_seq.errors import KnnSeqError
from knn_seq.settings import SearchSettings


@pytest.fixture(scope="module")
def store(skip_store, tmp_path_factory):
    """A datastore with subsets, and with settings that were tuned for them."""
    path = tmp_path_factory.mktemp("evaluate") / "store"
    shutil.copytree(skip_store.path, path)
    store = Datastore(path)
    store_settings(store, SearchSettings(k=16, temperature=30.0), as_default=True)
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
        *("--beam-size", 1, "--max-length", 8, "--skip", "learned"),
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
    common = {"combiner": "fixed", "skip": "learned"}
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


def written(*texts):
    return {name: (dict(system.settings), system.store) for name, system in parse_systems(texts).items()}


def test_how_systems_are_written():
    assert written("full", " memory,subset_size=8 ", "a b:k=2, weight = 0.5", "n 64: subset,sample=True") == {
        "full": ({"retriever": "full"}, None),
        "memory,subset_size=8": ({"retriever": "memory", "subset_size": 8}, None),
        "a b": ({"k": 2, "weight": 0.5}, None),
        "n 64": ({"retriever": "subset", "sample": True}, None),
    }
    # Indexes are named after their recipes, which have commas and may have colons.
    assert written("index=IVF64,PQ16,Refine(keys),index.nprobe=4", "index=usearch:f16,k=3") == {
        "index=IVF64,PQ16,Refine(keys),index.nprobe=4": (
            {"index": "IVF64,PQ16,Refine(keys)", "index_options": {"nprobe": "4"}},
            None,
        ),
        "index=usearch:f16,k=3": ({"index": "usearch:f16", "k": 3}, None),
    }


def test_how_systems_with_their_own_datastore_are_written(tmp_path):
    law = tmp_path / "a:b"
    law.mkdir()
    assert written(f"law={law}", f"few={law},k=2", f"x: store={law},subset,subset_size=4") == {
        "law": ({}, str(law)),
        "few": ({"k": 2}, str(law)),
        "x": ({"subset_size": 4}, f"{law},subset"),  # a path may have commas: the retriever is named
    }
    assert written(f"memory,store={law}", f"y: store={law},retriever=memory") == {
        f"memory,store={law}": ({"retriever": "memory"}, str(law)),
        "y": ({"retriever": "memory"}, str(law)),
    }


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["k=many"], "k must be a whole number, not 'many'"),
        (["k=2,weight"], "k must be a whole number, not '2,weight'"),
        (["weight=half"], "weight must be a number, not 'half'"),
        (["sample=perhaps"], "sample must be true or false, not 'perhaps'"),
        (["neighbours=3"], "There is no setting 'neighbours', and no datastore in 3: choose from batch_size, "),
        (["k=2,neighbours=3"], "There is no setting 'neighbours': choose from"),
        (["x: neighbours=3"], "There is no setting 'neighbours': choose from"),
        (["part.nprobe=3"], "There is no setting 'part_options': choose from"),
        (["k=2,k=3"], "says k twice"),
        (["full,retriever=subset"], "says retriever twice"),
        (["base: k=3"], "The name 'base' is the model's own"),
        (["base=."], "The name 'base' is the model's own"),
        (["x: k=3", "x: k=4"], "Two systems are called 'x'"),
        (["x: k=3", "x=."], "Two systems are called 'x'"),
    ],
)
def test_systems_that_make_no_sense(texts, sentence):
    with pytest.raises(KnnSeqError, match=sentence):
        parse_systems(texts)


GREEDY = ("--beam-size", 1, "--max-length", 8, "--metrics", "chrf", "-q")


def evaluated(knn_seq, tmp_path, *arguments):
    """The systems by name, as the JSON has them."""
    code, _, err = knn_seq("evaluate", *arguments, *GREEDY, "--json", tmp_path / "figures.json")
    assert code == 0, err
    report = json.loads((tmp_path / "figures.json").read_text())
    return {system["name"]: system for system in report["systems"]}


def test_memory_beside_the_other_retrievers(knn_seq, store, held_out, tmp_path):
    systems = ("full", "subset", "memory", "near: memory,k=1,temperature=1,weight=1")
    given = [part for system in systems for part in ("--system", system)]
    figures = evaluated(knn_seq, tmp_path, store.path, "--test", held_out, *given)
    memory, near = figures["memory"], figures["near"]
    assert figures["full"]["datastore"] == figures["subset"]["datastore"] == str(store.path)
    assert memory["translation_memory"] == near["translation_memory"] == "sentence pairs of store"
    assert (memory["settings"]["retriever"], memory["settings"]["combiner"]) == ("memory", "learned")
    assert near["chrf"] > figures["base"]["chrf"] + 10
    assert near["shares"]["search"] > 0
    assert all(len(system["speeds"]) == 3 for system in figures.values())


def test_a_translation_memory_beside_the_datastore(knn_seq, store, held_out, tmp_path):
    figures = evaluated(
        knn_seq,
        tmp_path,
        *(store.path, "--test", held_out, "--translation-memory", held_out, "--retriever", "full"),
        *("-k", 1, "--temperature", 1, "--weight", 1),
    )
    assert list(figures) == ["base", "knn", "memory"]
    assert figures["knn"]["settings"]["retriever"] == "full"
    assert figures["memory"]["translation_memory"] == held_out.name
    assert figures["memory"]["settings"] == {
        "retriever": "memory",
        "combiner": "distance",
        "k": 1,
        "temperature": 1.0,
        "weight": 1.0,
    }


def test_several_datastores(knn_seq, store, held_out, tmp_path, number_corpus):
    """Each system has the settings, the sentences and the memory of its own datastore."""
    reversed_pairs = tmp_path / "train.tsv"
    lines = (line.split("\t") for line in number_corpus.read_text().splitlines())
    reversed_pairs.write_text("".join(f"{source}\t{' '.join(target.split()[::-1])}\n" for source, target in lines))
    law = Datastore.build(
        tmp_path / "law", store.model_settings.name, reversed_pairs, index_recipe="Flat", calibration_sentences=0
    )
    copying = "k=1,temperature=1,weight=1"
    figures = evaluated(
        knn_seq,
        tmp_path,
        *(store.path, "--test", held_out, "--html", tmp_path / "report.html"),
        *("--system", "full", "--system", f"law={law.path}", "--system", f"copy: {copying}"),
        *("--system", f"law copy: store={law.path},{copying}"),
        *("--system", f"law memory: store={law.path},retriever=memory,{copying}"),
    )
    assert {name: figure.get("datastore") for name, figure in figures.items()} == {
        "base": None,
        "full": str(store.path),
        "law": str(law.path),
        "copy": str(store.path),
        "law copy": str(law.path),
        "law memory": None,
    }
    assert figures["law memory"]["translation_memory"] == "sentence pairs of law"
    assert figures["law"]["settings"] == {"retriever": "full", "combiner": "fixed", "k": 16, "temperature": 100.0} | {
        "weight": 0.5
    }
    assert figures["full"]["settings"]["temperature"] == store.search_settings.temperature != 100.0
    targets, wanted = ({target for _, target in each.texts} for each in (store, law))
    written_by = {name: set(figure["translations"]) for name, figure in figures.items()}
    short = {text for text in targets | wanted if len(text.split()) < 8}
    assert len(written_by["copy"] & short & targets) > len(written_by["copy"] & short & wanted)
    assert len(written_by["law copy"] & short & wanted) > len(written_by["law copy"] & short & targets)
    page = (tmp_path / "report.html").read_text()
    assert f"{law.path.name}: {len(law)} entries from 120 sentence pairs" in page


def test_a_datastore_of_another_model_is_refused(knn_seq, store, held_out, tmp_path, save_model, number_corpus):
    options = {"index_recipe": "Flat", "calibration_sentences": 0}
    other = Datastore.build(tmp_path / "other", save_model(seed=1), number_corpus, **options)
    output = Datastore.build(tmp_path / "output", save_model(), number_corpus, key="ffn_out", **options)
    cases = [
        (f"x={other.path}", "their weights differ"),
        (f"x={output.path}", f"{output.path} was made with the key ffn_out, but the model has ffn_in"),
        (f"x={tmp_path}", str(tmp_path)),
        (f"x: store={tmp_path / 'none'}", "none"),
    ]
    for system, sentence in cases:
        code, out, err = knn_seq("evaluate", store.path, "--test", held_out, "--system", system)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert sentence in err


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
        ((*given, "--metrics", ""), "no metric ''"),
        ((*given, "--comet-model", "x"), "name it among --metrics"),
        ((*given, "--system", "k=many"), "k must be a whole number"),
        ((*given, "--system", "k=0"), "K must be at least 1"),
        ((*given, "--system", "beam_size=0"), "beam size must be at least 1"),
        ((*given, "--system", "nowhere"), "no retriever 'nowhere'"),
        ((*given, "--system", ""), "no retriever ''"),
        ((*given, "--system", "combiner=nobody"), "no combiner 'nobody'"),
        ((*given, "--system", "index=none"), "has no index 'none'"),
        ((*given, "--translation-memory", tmp_path / "none.tsv"), "There is no file"),
        ((*given, "--system", "neighbours=3"), "There is no setting 'neighbours', and no datastore in 3"),
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

"""knn-seq translate --explain, from end to end."""

from __future__ import annotations

import json
import math
import re

import pytest

from knn_seq import Datastore
from knn_seq.cli import translate

LINES = ["5 6 7", "", "8 9", "   ", "10 11 12 13 14", "5 6 7"]
FIGURES = ("probability", "model_probability", "neighbour_probability", "weight")
SETTINGS = ("-k", 6, "--temperature", 30, "--weight", 0.7)


@pytest.fixture(scope="module")
def store(tmp_path_factory, save_model, number_corpus):
    path = tmp_path_factory.mktemp("explained") / "store"
    options = {"index_recipe": "Flat", "sentence_search": "bm25", "codes": "Flat", "calibration_sentences": 0}
    return Datastore.build(path, save_model(), number_corpus, **options)


@pytest.fixture
def explained(knn_seq, tmp_path):
    """Run the command on lines; returns the parsed objects and what it prints without --explain."""

    def run(searched, *options, shown=None, lines=LINES):
        (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
        common = ("--input", tmp_path / "in.txt", "--max-length", 9, "-q", *SETTINGS)
        explaining = ("--explain", "json") if shown is None else ("--explain", "json", "--explain-neighbours", shown)
        code, out, err = knn_seq("translate", *searched, *common, *options, *explaining)
        assert (code, err) == (0, "")
        code, texts, err = knn_seq("translate", *searched, *common, *options)
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()], texts.splitlines()

    return run


@pytest.mark.parametrize("kind", ["full", "subset", "memory", "ensemble", "distance"])
def test_a_line_for_each_line_with_figures_that_add_up(explained, store, save_model, number_corpus, kind):
    searched = {
        "full": (store.path,),
        "subset": (store.path, "--retriever", "subset", "--subset-size", 20),
        "memory": ("--translation-memory", number_corpus, "--model", save_model(), "--combiner", "fixed"),
        "ensemble": (store.path, "--ensemble", save_model("marian", 1)),
        "distance": (store.path, "--combiner", "distance"),
    }[kind]
    objects, texts = explained(searched, shown=6)
    assert [one["source"] for one in objects] == LINES
    assert [one["translation"] for one in objects] == texts
    pairs = [tuple(line.split("\t")) for line in number_corpus.read_text().splitlines()]
    tokens = [token for one in objects for token in one["tokens"]]
    assert any(token["changed"] for token in tokens)
    assert any(token["neighbours"] for token in tokens)
    for one in objects:
        assert list(one) == ["source", "translation", "log_probability", "tokens"]
        assert bool(one["tokens"]) == bool(one["source"].strip())
        total = sum(math.log(token["probability"]) for token in one["tokens"])
        assert one["log_probability"] == pytest.approx(total, abs=1e-4)
        for token in one["tokens"]:
            mixture = token["weight"] * token["neighbour_probability"]
            mixture += (1 - token["weight"]) * token["model_probability"]
            assert token["probability"] == pytest.approx(mixture, abs=1e-5)
            own = [n["probability"] for n in token["neighbours"] if n["token"] == token["token"]]
            assert token["neighbour_probability"] == pytest.approx(sum(own), abs=1e-5)
            every = [n["probability"] for n in token["neighbours"]]
            assert sum(every) == pytest.approx(1 if every else 0, abs=1e-4)
            for neighbour in token["neighbours"]:
                assert (neighbour["source"], neighbour["target"]) == pairs[neighbour["sentence"]]
                words = [*neighbour["target"].split(), "</s>"]
                assert words[neighbour["position"]] == neighbour["token"]
            for value in (token[name] for name in FIGURES):
                assert value == float(f"{value:.6g}")


def test_fewer_neighbours_are_written_and_the_figures_stay(explained, store):
    every, _ = explained((store.path,), shown=6)
    two, _ = explained((store.path,), shown=2)
    none, _ = explained((store.path,), shown=0)
    for whole, some, nothing in zip(every, two, none, strict=True):
        for a, b, c in zip(whole["tokens"], some["tokens"], nothing["tokens"], strict=True):
            assert a["neighbours"][:2] == b["neighbours"]
            assert c["neighbours"] == []
            assert {**a, "neighbours": 0} == {**b, "neighbours": 0} == {**c, "neighbours": 0}


def test_eight_neighbours_unless_told_otherwise(explained, store):
    objects, _ = explained((store.path,), "-k", 12, lines=["5 6 7"])
    assert {len(token["neighbours"]) for token in objects[0]["tokens"]} == {translate.NEIGHBOURS["json"]} == {8}


def test_alternatives_stand_in_the_line_of_the_best(explained, store):
    objects, texts = explained((store.path,), "--nbest", 3)
    assert len(objects) == len(LINES)
    listed = []
    for number, one in enumerate(objects):
        for other in one["alternatives"]:
            assert list(other) == ["translation", "log_probability", "tokens"]
            assert other["log_probability"] == pytest.approx(
                sum(math.log(token["probability"]) for token in other["tokens"]), abs=1e-4
            )
        outputs = [one["translation"], *(other["translation"] for other in one["alternatives"])]
        listed += [f"{number} ||| {output}" for output in outputs]
        assert len(outputs) == (3 if one["source"].strip() else 1)
    assert listed == texts
    assert "alternatives" not in explained((store.path,))[0][0]


def test_pieces_of_the_input_do_not_matter(explained, store, monkeypatch):
    whole, _ = explained((store.path,))
    monkeypatch.setattr(translate, "EXPLAINED_AT_ONCE", 2)
    in_pieces, _ = explained((store.path,))
    for one, other in zip(whole, in_pieces, strict=True):
        assert one["translation"] == other["translation"]
        for left, right in zip(one["tokens"], other["tokens"], strict=True):
            assert [left[name] for name in FIGURES] == pytest.approx([right[name] for name in FIGURES], abs=1e-5)
            assert [n["entry"] for n in left["neighbours"]] == [n["entry"] for n in right["neighbours"]]


def test_the_model_alone(explained, store):
    objects, _ = explained((store.path,), "--weight", 0, "--beam-size", 1)
    for token in (token for one in objects for token in one["tokens"]):
        assert token["probability"] == token["model_probability"]
        assert (token["weight"], token["neighbours"], token["changed"]) == (0, [], False)
        assert token["model_choice"] == token["token"]


def test_only_empty_lines(explained, store):
    objects, texts = explained((store.path,), lines=["", " "])
    assert objects == [
        {"source": source, "translation": "", "log_probability": 0, "tokens": []} for source in ("", " ")
    ]
    assert texts == ["", ""]


def test_letters_are_written_as_they_are(knn_seq, save_model, tmp_path):
    memory = tmp_path / "memory.tsv"
    memory.write_text("5 6 naïve\t7 8 日本\n9\t10\n", encoding="utf-8")
    (tmp_path / "in.txt").write_text('5 6 "é"\n', encoding="utf-8")
    searched = (
        "--translation-memory",
        memory,
        "--model",
        save_model(),
        "--input",
        tmp_path / "in.txt",
        "--max-length",
        4,
    )
    code, out, err = knn_seq("translate", *searched, *SETTINGS, "--explain", "json", "-q")
    assert code == 0, err
    assert "naïve" in out
    assert "日本" in out
    assert json.loads(out)["source"] == '5 6 "é"'


def test_mistakes_are_one_sentence_and_exit_code_2(knn_seq, store):
    cases = [
        (("--explain-neighbours", 3), "give --explain as well"),
        (("--explain", "json", "--explain-neighbours", -1), "must be at least 0, not -1"),
        (("--explain", "json", "--explain-neighbours", "many"), "invalid int"),
        (("--explain", "json", "--weight", 2), "weight must lie"),
    ]
    for options, sentence in cases:
        code, out, err = knn_seq("translate", store.path, *options, "-q")
        assert (code, out) == (2, ""), (options, err)
        assert sentence in err
        assert err.count("\n") == 1


def test_explanations_to_read(knn_seq, store, tmp_path):
    (tmp_path / "in.txt").write_text("5 6 7\n\n")
    options = ("--input", tmp_path / "in.txt", "--max-length", 9, "-q", *SETTINGS)
    code, out, err = knn_seq("translate", store.path, *options, "--explain", "text")
    assert (code, err) == (0, "")
    [line] = [line for line in out.splitlines() if line.startswith("translation")]
    assert line.split(maxsplit=1)[1] == knn_seq("translate", store.path, *options)[1].splitlines()[0]
    assert "     source  5 6 7\n" in out
    assert "    example  (" in out
    changed = [line for line in out.splitlines() if line.startswith("    changed")]
    assert changed
    assert all(" for the model's " in line for line in changed)
    reasons = [line for line in out.splitlines() if line.startswith("          λ  ")]
    assert len(reasons) == len(changed)
    assert all(re.search(r"0\.70: nearest at [\d.]+, \d+% agree, the model's certainty 0\.\d{3}$", r) for r in reasons)
    assert max(map(len, out.splitlines())) <= 110

from __future__ import annotations

import io
import json
import sys


def test_translate_with_a_memory(knn_seq, save_model, number_corpus, tmp_path, monkeypatch):
    (tmp_path / "train.tsv").write_text(number_corpus.read_text() + "only one side\n")
    pairs = [line.split("\t") for line in number_corpus.read_text().splitlines()]
    source, target = max(pairs, key=lambda pair: len(pair[0]))
    (tmp_path / "in.txt").write_text(f"{source}\n\n8 9\n")
    options = ("--model", save_model(), "--input", tmp_path / "in.txt", "--max-length", 9)
    code, out, err = knn_seq("translate", "--translation-memory", tmp_path / "train.tsv", *options)
    assert (code, len(out.splitlines())) == (0, 3), err
    assert "Left out: 1 sentence pair (1 missing column)." in err
    assert "training LearnedCombiner: " in err

    copying = ("-k", 1, "--weight", 1, "--temperature", 1, "--subset-size", 4, "--beam-size", 1, "-q")
    code, out, err = knn_seq("translate", "--translation-memory", tmp_path / "train.tsv", *options, *copying)
    assert (code, out.splitlines()[0], err) == (0, target, "")

    # The other way round, from another column and from standard input.
    swapped = (
        "--translation-memory",
        number_corpus,
        "--translation-memory-columns",
        "2,1",
        "--model",
        save_model(),
        "--max-length",
        9,
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{target}\n"))
    code, out, err = knn_seq("translate", *swapped, *copying)
    assert (code, out, err) == (0, f"{source}\n", "")


def test_evaluate_with_a_memory(knn_seq, save_model, number_corpus, tmp_path):
    (tmp_path / "test.tsv").write_text("".join(number_corpus.read_text().splitlines(keepends=True)[:12]))
    copying = ("-k", 1, "--weight", 1, "--temperature", 1, "-q", "--json", tmp_path / "scores.json", "--max-length", 9)
    code, out, err = knn_seq(
        "evaluate",
        "--translation-memory",
        number_corpus,
        "--model",
        save_model(),
        "--test",
        tmp_path / "test.tsv",
        *copying,
    )
    assert code == 0, err
    assert "BLEU: nrefs:1" in out
    report = json.loads((tmp_path / "scores.json").read_text())
    assert report["translation_memory"] == str(number_corpus)
    assert report["model"] == save_model()
    assert "datastore" not in report
    base, knn = report["systems"]
    assert knn["settings"]["retriever"] == "memory"
    assert knn["chrf"] > base["chrf"] + 10


def test_bad_input_is_one_sentence_and_exit_code_2(knn_seq, save_model, number_corpus, number_store, tmp_path):
    (tmp_path / "empty.tsv").write_text("\n")
    model, memory, store = ("--model", save_model()), ("--translation-memory", number_corpus), number_store.path
    cases = [
        (("translate",), "Give a datastore's folder or a translation memory"),
        (("translate", store, *memory), "not both"),
        (("translate", *memory), "--model"),
        (("translate", *model), "Give a datastore's folder or a translation memory"),
        (("translate", "--translation-memory", tmp_path / "none.tsv", *model), "There is no file"),
        (("translate", "--translation-memory", tmp_path / "empty.tsv", *model), "no usable sentence pair in empty.tsv"),
        (("translate", *memory, "--translation-memory-columns", "1,7", *model), "no usable sentence pair"),
        (("translate", *memory, "--translation-memory-columns", "1", *model), "Give two columns"),
        (("translate", *memory, *model, "--retriever", "full"), "'full' needs a datastore"),
        (("translate", *memory, *model, "--subset-size", 0), "Subset-size must be at least 1"),
        (("translate", store, "--source-lang", "pt"), "--source-lang is for a translation memory"),
        (
            ("translate", store, "--translation-memory-columns", "1,2"),
            "--translation-memory-columns is for a translation memory",
        ),
        (("evaluate", "--test", number_corpus), "Give a datastore's folder or a translation memory"),
        (("evaluate", *memory, "--test", number_corpus), "--model"),
        (("tune", store, *memory, "--dev", number_corpus), "not both"),
        (("evaluate", store, *memory, "--source-lang", "pt", "--test", number_corpus), "source_lang is for a"),
    ]
    for arguments, sentence in cases:
        code, out, err = knn_seq(*arguments, "-q")
        assert code == 2, (arguments, err)
        assert sentence in err, (arguments, err)
        assert err.startswith("knn-seq: ")
        assert err.count("\n") == 1, (arguments, err)
        assert not out

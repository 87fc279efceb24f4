from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from knn_seq import __version__
from knn_seq.cli.main import COMMANDS


@pytest.fixture(scope="module")
def held_out(tmp_path_factory, number_corpus):
    path = tmp_path_factory.mktemp("test") / "test.tsv"
    path.write_text("".join(number_corpus.read_text().splitlines(keepends=True)[:12]))
    return path


def test_build_translate_evaluate_info(knn_seq, save_model, number_corpus, held_out, tmp_path):
    store = tmp_path / "store"
    code, out, err = knn_seq(
        "build", store, "--model", save_model(), "--corpus", number_corpus, "--index-recipe", "Flat"
    )
    assert code == 0, err
    assert "entries" in out
    assert "keys: " in err  # not a terminal: plain lines with a rate
    assert "tokens/s" in err

    same = ("build", store, "--model", save_model(), "--corpus", number_corpus, "--index-recipe", "Flat")
    code, _, err = knn_seq(*same)
    assert (code, "nothing was done" in err) == (0, True)

    (tmp_path / "in.txt").write_text("5 6 7\n\n8 9\n")
    options = ("--input", tmp_path / "in.txt", "--max-length", 9, "--quiet")
    code, out, err = knn_seq("translate", store, *options)
    assert (code, len(out.splitlines())) == (0, 3), err
    assert out.splitlines()[1] == ""
    assert knn_seq("translate", store, *options, "--output", tmp_path / "out.txt")[0] == 0
    assert (tmp_path / "out.txt").read_text() == out
    nbest = knn_seq("translate", store, *options, "--nbest", 2, "--weight", 0.3, "-k", 4)[1].splitlines()
    assert [line.split(" ||| ")[0] for line in nbest] == ["0", "0", "1", "2", "2"]

    scores = tmp_path / "scores.json"
    copying = ("--combiner", "fixed", "-k", 1, "--weight", 1.0, "--temperature", 1.0, "--max-length", 9)
    code, out, err = knn_seq("evaluate", store, "--test", held_out, "--json", scores, *copying, "-q")
    assert code == 0, err
    assert "BLEU: nrefs:1" in out
    report = json.loads(scores.read_text())
    assert [system["name"] for system in report["systems"]] == ["base", "knn"]
    for system in report["systems"]:
        assert {"bleu", "chrf", "tokens_per_second"} <= system.keys()
    base, knn = report["systems"]
    assert knn["chrf"] > base["chrf"] + 10  # it has seen the very sentences

    code, out, _ = knn_seq("info", store)
    assert code == 0
    assert "120" in out
    assert "temperature" in out  # of the vanilla settings, which a build measures whatever it trains
    assert "complete" in out
    assert json.loads(knn_seq("info", store, "--json")[1])["counts"]["sentences"] == 120


def test_bad_input_is_one_sentence_and_exit_code_2(knn_seq, save_model, number_corpus, number_store, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "words.xyz").write_text("a\tb\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    model, store = ("--model", save_model()), number_store.path
    cases = [
        (("dance",), "invalid choice"),
        (("build", tmp_path / "s"), "--model"),
        (("build", tmp_path / "s", *model), "either as files"),
        (("build", tmp_path / "s", *model, "--corpus", tmp_path / "none.tsv"), "There is no file"),
        (("build", tmp_path / "s", *model, "--corpus", tmp_path / "folder"), "no corpus in the folder"),
        (("build", tmp_path / "s", *model, "--corpus", tmp_path / "words.xyz"), "does not tell its format"),
        (("build", tmp_path / "s", *model, "--corpus", number_corpus, "--columns", "1,9"), "no usable sentence pair"),
        (
            ("build", tmp_path / "t", *model, "--corpus", number_corpus, "--index-recipe", "IVF,Nonsense"),
            "IVF,Nonsense",
        ),
        (("build", tmp_path / "s", "--model", "no/such-model", "--corpus", number_corpus), "There is no model"),
        (("build", tmp_path / "s", "--model", "firefox:xx-yy", "--corpus", number_corpus), "pt-en"),
        (("build", tmp_path / "s", "--model", "martian:x", "--corpus", number_corpus), "no model backend 'martian'"),
        (("build", tmp_path / "s", *model, "--corpus", number_corpus, "--device", "abacus"), "cannot be used here"),
        (("build", tmp_path / "s", *model, "--corpus", number_corpus, "--key", "nowhere"), "nowhere"),
        (("build", store, *model, "--corpus", number_corpus, "--index-recipe", "HNSW32"), "another index"),
        (("translate", tmp_path / "nothing"), "is not a datastore"),
        (("translate", store, "--input", tmp_path / "none.txt"), "cannot be read"),
        (("translate", store, "--input", tmp_path / "latin.txt"), "not UTF-8"),
        (("translate", store, "--weight", "2"), "weight must lie"),
        (("translate", store, "-k", "many"), "invalid int"),
        (("evaluate", store, "--test", tmp_path / "none.tsv"), "There is no file"),
        (("evaluate", store, "--test", number_corpus, "--json", tmp_path / "no" / "x.json"), "does not exist"),
        (("info", tmp_path), "is not a datastore"),
    ]
    for arguments, sentence in cases:
        code, out, err = knn_seq(*arguments, *(["--quiet"] if arguments[:1] == ("build",) else []))
        assert code == 2, (arguments, err)
        assert sentence in err, (arguments, err)
        assert err.startswith("knn-seq: ")
        assert err.count("\n") == 1, (arguments, err)
        assert not out


@pytest.mark.parametrize(
    "name", ["ui.po", "a.XLIFF", "a.xlf", "letter.docx", "table.csv", "a.tmx", "page.html", "b.htm", "c.pdf", "d.po.gz"]
)
def test_what_is_no_plain_text_is_not_translated_line_by_line(knn_seq, number_store, tmp_path, name):
    (tmp_path / name).write_text("5 6\n")
    code, out, err = knn_seq("translate", number_store.path, "--input", tmp_path / name)
    assert (code, out) == (2, "")
    assert f"{name} is a .{name.lower().removesuffix('.gz').rpartition('.')[2]} file" in err
    assert err.count("\n") == 1


def test_lines_that_were_cut_are_counted(knn_seq, number_store, tmp_path):
    (tmp_path / "in.txt").write_text(" ".join(["5"] * 3000) + "\n6 7\n")
    options = ("--input", tmp_path / "in.txt", "--max-length", 3, "--weight", 0, "-q")
    code, _, err = knn_seq("translate", number_store.path, *options)
    assert (code, err) == (0, "knn-seq: Longer than the model can read, and cut at the end: 1 line.\n")


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from knn_seq.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'transformers', 'faiss', 'h5py'} & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"
    assert all(command in result.stdout for command in COMMANDS)


def test_the_installed_command_reads_standard_input(number_store):
    command = os.path.join(os.path.dirname(sys.executable), "knn-seq")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"knn-seq {__version__}\n"
    result = subprocess.run(
        [command, "translate", number_store.path, "-q"], input="5 6\n", capture_output=True, text=True, check=True
    )
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""

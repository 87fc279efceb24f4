"""knn-seq translate with files."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

DOCUMENT = "5 6 abc\n\n7 8 def\n"


@pytest.fixture
def memory(tmp_path):
    path = tmp_path / "memory.tsv"
    path.write_text("Salvar\tSave\nO arquivo foi apagado.\tThe file was erased.\n")
    return ("--translation-memory", path, "--model", "firefox:pt-en", "--temperature", 50, "--combiner", "fixed")


def test_a_file_is_written_beside_and_reported(knn_seq, memory, tmp_path):
    (tmp_path / "in.md").write_text("# Salvar\n\nO arquivo foi apagado.\n")
    code, out, err = knn_seq("translate", tmp_path / "in.md", *memory, "--output", tmp_path / "out.md")
    assert (code, out) == (0, ""), err
    assert (tmp_path / "out.md").read_text() == "# Save\n\nThe file was erased.\n"
    assert "2 segments, 5 words; 2 exact matches; 0 with neighbours" in err


def test_several_files_go_to_a_folder_and_json_tells_of_each(knn_seq, memory, tmp_path):
    for name in ("a.txt", "b.po"):
        (tmp_path / name).write_text("Salvar\n" if name == "a.txt" else 'msgid "Salvar"\nmsgstr ""\n')
    names = (tmp_path / "a.txt", tmp_path / "b.po")
    code, out, _ = knn_seq("translate", *names, *memory, "--to-folder", tmp_path / "made", "--report", "json", "-q")
    assert code == 0
    reports = [json.loads(line) for line in out.splitlines()]
    assert [(report["format"], report["exact_matches"]) for report in reports] == [("text", 1), ("po", 1)]
    assert reports[0]["details"] == [
        {"key": "line 1", "source": "Salvar", "target": "Save", "origin": "exact", "share": None, "repaired": False}
    ]
    assert (tmp_path / "made" / "a.txt").read_text() == "Save\n"
    assert 'msgstr "Save"' in (tmp_path / "made" / "b.po").read_text()


def test_one_file_goes_to_standard_output(memory, tmp_path, knn_seq, monkeypatch):
    import io

    (tmp_path / "in.txt").write_text("Salvar\n")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=written, isatty=lambda: False, flush=lambda: None))
    knn_seq("translate", tmp_path / "in.txt", *memory, "-q")
    assert written.getvalue() == b"Save\n"


def test_a_datastore_translates_files(knn_seq, number_store, tmp_path):
    source, _ = number_store.texts[3]
    (tmp_path / "in.json").write_text(json.dumps({"a": f"{source} x"}))
    code, _, err = knn_seq(
        "translate", number_store.path, tmp_path / "in.json", "--output", tmp_path / "out.json", "-q"
    )
    assert (code, err) == (0, "")
    assert set(json.loads((tmp_path / "out.json").read_text())) == {"a"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a.xyz"], "tells no format that can be translated; there are docbook"),
        (["none.po"], "There is no file"),
        (["a.txt", "b.txt"], "give --to-folder"),
        (["a.txt", "sub/a.txt", "--to-folder", "made"], "Two of the files would be written to"),
        (["a.txt", "--to-folder", "."], "would be written over"),
        (["a.txt", "--to-folder", "made", "--output", "b"], "not both"),
        (["a.txt", "--report", "json"], "mixed with the file"),
        (["a.txt", "--nbest", "2"], "--nbest is for lines"),
        (["a.txt", "--explain", "json"], "--explain is for lines"),
        (["a.txt", "--format", "none"], "There is no document format 'none'"),
        (["a.txt", "--output", "none/b.txt"], "does not exist"),
        (["bad.po", "--output", "b.po"], "no gettext catalog"),
        (["a.txt", "--output", "b.txt", "--placeholder", "("], "no regular expression"),
        ([], "--to-folder is for files"),
    ],
)
def test_what_cannot_be_is_one_sentence(knn_seq, number_store, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("a.xyz", "a.txt", "b.txt", "sub/a.txt", "bad.po"):
        (tmp_path / name).write_text("Salvar\n")
    arguments = arguments or ["--to-folder", "made"]
    code, out, err = knn_seq("translate", number_store.path, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert (tmp_path / "a.txt").read_text() == "Salvar\n"
    assert not (tmp_path / "b.po").exists()

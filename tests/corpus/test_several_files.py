"""Several files and folders as one corpus, and standard input."""

from __future__ import annotations

import gzip
import io
import json

import pytest
from tmx_files import tmx, unit

from knn_seq import Datastore
from knn_seq.build import text as text_step
from knn_seq.corpus import BadPair, SentencePair, open_corpus
from knn_seq.errors import InvalidSetting, NotFound
from knn_seq.storage.translation_memory import TranslationMemory


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file of each kind, as a relative path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    files = {
        "b.tsv": "dois\ttwo\nbad\ntrês\tthree\n",
        "a.tmx": tmx(unit('tuid="1"', pt="um", en="one"), srclang="pt"),
        "c.po": 'msgid "four"\nmsgstr "quatro"\n',
        "deep/d.xlf": '<xliff><file source-language="pt" target-language="en"><trans-unit id="1"><source>cinco</source>'
        "<target>five</target></trans-unit></file></xliff>",
        "notes.txt": "no corpus",
        ".hidden.tsv": "a\tb\n",
    }
    for name, text in files.items():
        (tmp_path / "texts" / name).write_text(text)
    (tmp_path / "texts" / "deep" / "e.jsonl.gz").write_bytes(
        gzip.compress(json.dumps({"source": "seis", "target": "six", "corpus": "old"}).encode())
    )
    (tmp_path / "z.tsv").write_text("sete\tseven\n")
    return tmp_path / "texts"


EXPECTED = [
    ("um", "one", "texts/a.tmx, unit 1 (tuid 1)", "texts/a.tmx"),
    ("dois", "two", "texts/b.tsv, line 1", "texts/b.tsv"),
    ("texts/b.tsv, line 2", "missing column"),
    ("três", "three", "texts/b.tsv, line 3", "texts/b.tsv"),
    ("quatro", "four", "texts/c.po, line 1", "texts/c.po"),
    ("cinco", "five", "texts/deep/d.xlf, unit 1 (id 1)", "texts/deep/d.xlf"),
    ("seis", "six", "texts/deep/e.jsonl.gz, line 1", "old"),
]
SOURCE = {"source": "msgstr"}


def rows(units):
    return [
        (unit.source, unit.target, unit.place, unit.corpus) if isinstance(unit, SentencePair) else tuple(unit)
        for unit in units
    ]


def test_a_folder_stands_for_its_files(folder):
    corpus = open_corpus("texts", options=SOURCE)
    assert rows(corpus) == EXPECTED
    for start in range(9):
        assert rows(corpus.pairs(start)) == EXPECTED[start:]
    assert corpus.describe() == "a.tmx, b.tsv and 3 others"


def test_files_and_folders_come_in_their_order_and_once(folder):
    corpus = open_corpus(["z.tsv", folder / "b.tsv", "texts", "z.tsv"], options=SOURCE)
    names = [unit.corpus for unit in corpus if isinstance(unit, SentencePair)]
    assert names == ["z.tsv", *[str(folder / "b.tsv")] * 2, "texts/a.tmx", "texts/c.po", "texts/deep/d.xlf", "old"]
    assert open_corpus(["z.tsv", "texts/b.tsv"]).describe() == "z.tsv and b.tsv"
    assert open_corpus(["z.tsv"]).identity() == open_corpus("z.tsv").identity()
    assert rows(open_corpus(["z.tsv"])) == [("sete", "seven", "line 1", "z.tsv")]


def test_a_format_chooses_the_files_of_a_folder(folder):
    assert rows(open_corpus("texts", format="tsv")) == [
        ("dois", "two", "line 1", "texts/b.tsv"),
        ("line 2", "missing column"),
        ("três", "three", "line 3", "texts/b.tsv"),
    ]
    (folder / "b.tsv").unlink()
    with pytest.raises(NotFound, match=r"no corpus in the folder texts: no file in it ends with \.tab, \.tsv\."):
        open_corpus("texts", format="tsv")


def test_options_and_columns_go_to_the_readers_that_have_them(folder):
    corpus = open_corpus(["texts/a.tmx", "texts/b.tsv"], columns=(2, 1), options={"source_lang": "en"})
    assert [tuple(unit[:2]) for unit in corpus if isinstance(unit, SentencePair)] == [
        *(("one", "um"), ("two", "dois"), ("three", "três")),
    ]
    with pytest.raises(InvalidSetting, match="None of the corpus readers tmx, tsv has an option 'split'"):
        open_corpus(["texts/a.tmx", "texts/b.tsv"], options={"split": "x"})
    with pytest.raises(InvalidSetting, match="no columns to choose from"):
        open_corpus(["texts/a.tmx", "texts/c.po"], columns=(1, 2))
    with pytest.raises(NotFound, match=r"There is no file none\.tsv"):
        open_corpus(["texts/a.tmx", "none.tsv"])
    with pytest.raises(InvalidSetting, match=r"notes\.txt does not tell its format"):
        open_corpus(["texts/a.tmx", "texts/notes.txt"])


def test_the_identity_covers_all_files(folder):
    def identity():
        return open_corpus(["texts", "z.tsv"], options=SOURCE).identity()

    first = identity()
    assert json.loads(json.dumps(first)) == first == identity()
    for path in (folder / "deep" / "d.xlf", folder.parent / "z.tsv"):
        path.write_text(path.read_text() + "\n")
        assert identity() != first
        first = identity()
    (folder / "new.tsv").write_text("a\tb\n")
    assert identity() != first
    assert open_corpus(["z.tsv", "texts/b.tsv"]).identity() != open_corpus(["texts/b.tsv", "z.tsv"]).identity()


def test_a_build_of_several_files_resumes_in_the_middle(tmp_path, number_corpus, save_model, monkeypatch):
    lines = number_corpus.read_text().splitlines(keepends=True)
    (tmp_path / "a.tsv").write_text("".join(lines[:50]))
    units = [unit("", pt=source, en=target) for source, target in (line.split("\t") for line in lines[50:])]
    (tmp_path / "b.tmx").write_text(tmx(*units, srclang="pt"))
    paths = [tmp_path / "a.tsv", tmp_path / "b.tmx"]
    options = {"index_recipe": "Flat", "calibration_sentences": 0, "checkpoint_seconds": 0.0, "workers": 1}
    monkeypatch.setattr("knn_seq.build.tokens.UNITS_PER_CHUNK", 30)
    append, chunks = text_step._append, iter(range(2))

    def interrupted(*given):
        if next(chunks, None) is None:
            raise KeyboardInterrupt
        append(*given)

    with monkeypatch.context() as patch:
        patch.setattr(text_step, "_append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Datastore.build(tmp_path / "store", save_model(), paths, **options)
    resumed = Datastore.build(tmp_path / "store", save_model(), paths, **options)
    assert list(resumed.texts) == [tuple(line.rstrip().split("\t")) for line in lines]
    assert resumed.manifest.corpus.description == "a.tsv and b.tmx"


def test_the_command_line_takes_several(tmp_path, number_corpus, save_model, knn_seq):
    lines = number_corpus.read_text().splitlines(keepends=True)
    for number in range(3):
        (tmp_path / f"{number}.tsv").write_text("".join(lines[number::3]))
    files = [tmp_path / f"{number}.tsv" for number in range(3)]
    options = ("--index-recipe", "Flat", "--combiner", "fixed", "-q")
    given = ("--corpus", *files[:2], "--corpus", files[2])
    code, _, error = knn_seq("build", tmp_path / "store", "--model", save_model(), *given, *options)
    assert code == 0, error
    assert Datastore(tmp_path / "store").manifest.counts.sentences == len(lines)


class TestStandardInput:
    @pytest.fixture
    def stdin(self, monkeypatch):
        def give(data: bytes):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

        return give

    def test_it_is_tsv_unless_a_format_is_given(self, stdin):
        stdin(b"um\tone\ndois\n")
        expected = [SentencePair("um", "one", "line 1", corpus="stdin"), BadPair("line 2", "missing column")]
        assert list(open_corpus("-")) == expected
        stdin(gzip.compress(tmx(unit("", pt="um", en="one"), srclang="pt").encode()))
        corpus = open_corpus("-", format="tmx")
        assert list(corpus) == list(corpus) == [SentencePair("um", "one", "unit 1", corpus="stdin")]
        assert corpus.describe() == "stdin"

    def test_it_may_stand_among_files(self, stdin, folder):
        stdin(b"um\tone\n")
        corpus = open_corpus(["z.tsv", "-"])
        assert [unit.corpus for unit in corpus] == ["z.tsv", "stdin"]

    def test_the_same_input_is_the_same_corpus(self, stdin):
        identities = []
        for data in (b"um\tone\n", b"um\tone\n", b"um\ttwo\n"):
            stdin(data)
            identities.append(open_corpus("-").identity())
        assert identities[0] == identities[1] != identities[2]

    def test_its_file_goes_with_the_corpus(self, stdin):
        stdin(b"um\tone\n")
        corpus = open_corpus("-")
        path = corpus.reader.paths[0]
        assert path.exists()
        del corpus
        assert not path.exists()

    def test_a_build_is_resumed_with_the_same_input(self, stdin, knn_seq, tmp_path, number_corpus, save_model):
        options = ("--corpus", "-", "--index-recipe", "Flat", "--combiner", "fixed", "-q")
        for data, expected in ((number_corpus.read_bytes(), 0), (number_corpus.read_bytes(), 0), (b"1 2\t3 4\n", 2)):
            stdin(data)
            code, _, error = knn_seq("build", tmp_path / "store", "--model", save_model(), *options)
            assert code == expected, error
        assert "another corpus (made from stdin" in error

    def test_it_is_not_both_memory_and_text(self, knn_seq, save_model):
        code, _, error = knn_seq("translate", "--translation-memory", "-", "--model", save_model())
        assert (code, "cannot be both the translation memory and what to translate: give --input" in error) == (2, True)


def test_a_translation_memory_of_a_folder(folder):
    memory = TranslationMemory.open("texts", options=SOURCE)
    assert [source for source, _ in memory.texts] == ["um", "dois", "três", "quatro", "cinco", "seis"]

from __future__ import annotations

import codecs
import gzip
import json
import os
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.corpus import CORPUS_FORMATS, BadLine, CorpusReader, SentencePair, open_corpus
from knn_seq.corpus import lines as corpus_lines
from knn_seq.corpus.pair import EMPTY_SIDE, MISSING_COLUMN, NOT_JSON, NOT_UTF8, TOO_LONG
from knn_seq.errors import KnnSeqError


def write(path, data: bytes, gzipped: bool = False):
    path.write_bytes(gzip.compress(data) if gzipped else data)
    return path


sentence = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\ufeff"), max_size=20).map(str.strip)


@settings(max_examples=50, deadline=None)
@given(
    pairs=st.lists(st.tuples(sentence, sentence), max_size=8),
    gzipped=st.booleans(),
    bom=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    last_end=st.booleans(),
    skip=st.integers(0, 9),
)
def test_every_format_gives_the_same_lines(tmp_path_factory, pairs, gzipped, bom, end, last_end, skip):
    folder = tmp_path_factory.mktemp("corpus")

    def store(name: str, lines: list[str]):
        text = end.join(lines) + (end if lines and (last_end or not lines[-1]) else "")
        return write(folder / name, (codecs.BOM_UTF8 if bom else b"") + text.encode(), gzipped)

    tsv = store("a.tsv.gz" if gzipped else "a.tsv", [f"{source}\t{target}" for source, target in pairs])
    jsonl = store("a.jsonl", [json.dumps({"source": source, "target": target}) for source, target in pairs])
    source, target = store("a.pt", [pair[0] for pair in pairs]), store("a.en", [pair[1] for pair in pairs])
    expected = [
        SentencePair(*pair, line) if all(pair) else BadLine(line, EMPTY_SIDE) for line, pair in enumerate(pairs, 1)
    ]
    for corpus in (open_corpus(tsv), open_corpus(jsonl), open_corpus(source=source, target=target)):
        assert list(corpus) == expected
        assert list(corpus.lines(skip)) == expected[skip:]


def test_tsv_columns_and_bad_lines(tmp_path):
    data = b'x\tum\tone\nx\tdois\nx\t \ttwo\n\xff\xfe\tx\ty\nx\t"tr\xc3\xaas\t th"ree \tmore\n\n'
    path = write(tmp_path / "a.tsv", data)
    assert list(open_corpus(path, columns=(2, 3))) == [
        SentencePair("um", "one", 1),
        BadLine(2, MISSING_COLUMN),
        BadLine(3, EMPTY_SIDE),
        BadLine(4, NOT_UTF8),
        SentencePair('"três', 'th"ree', 5),
        BadLine(6, EMPTY_SIDE),
    ]
    assert next(iter(open_corpus(path, columns=("3", "1")))) == SentencePair("one", "x", 1)


def test_json_lines_paths_and_bad_lines(tmp_path):
    lines = [
        '{"translation": {"pt": "um", "en": "one"}}',
        '{"translation.pt": "dois", "translation": {"en": "two"}}',
        '{"translation": {"pt": "um"}}',
        '{"translation": {"pt": 1, "en": null}}',
        '{"translation": "um"}',
        '["um", "one"]',
        '{"translation": {"pt": "um", "en": "one"}',
        "[" * 100_000,
        '{"translation": {"pt": "\\ud800", "en": "one"}}',
        '{"translation": {"pt": "", "en": "one"}}',
        "",
    ]
    path = write(tmp_path / "a.json", "\n".join([*lines, ""]).encode(), gzipped=True)
    assert list(open_corpus(path, columns=("translation.pt", "translation.en"))) == [
        SentencePair("um", "one", 1),
        SentencePair("dois", "two", 2),
        *(BadLine(line, MISSING_COLUMN) for line in (3, 4, 5, 6)),
        BadLine(7, NOT_JSON),
        BadLine(8, NOT_JSON),
        BadLine(9, NOT_UTF8),
        BadLine(10, EMPTY_SIDE),
        BadLine(11, EMPTY_SIDE),
    ]


def test_unicode_line_separators_do_not_end_a_line(tmp_path):
    path = write(tmp_path / "a.tsv", "a\u2028b\x0cc\x85d\tx\u2029y\n".encode())
    assert list(open_corpus(path)) == [SentencePair("a\u2028b\x0cc\x85d", "x\u2029y", 1)]


def test_an_endless_line_is_bad_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_lines, "MAX_LINE_BYTES", 8)
    path = write(tmp_path / "a.tsv", b"ab\tcdef\nab\tcdefg\n" + b"x" * 30 + b"\na\tb\n" + b"y" * 8)
    long = [BadLine(line, TOO_LONG) for line in (2, 3, 5)]
    assert list(open_corpus(path)) == [SentencePair("ab", "cdef", 1), *long[:2], SentencePair("a", "b", 4), long[2]]


@pytest.mark.parametrize("shorter", ["source", "target"])
def test_text_files_of_different_lengths(tmp_path, shorter):
    files = {
        side: write(tmp_path / side, b"a\nb\n" if side == shorter else b"a\nb\nc\n") for side in ("source", "target")
    }
    lines = open_corpus(**files).lines()
    assert len(list(islice(lines, 2))) == 2
    with pytest.raises(KnnSeqError, match=r"source and .*target do not have the same number of lines.* line 3"):
        next(lines)


def test_a_stream_is_not_read_ahead(tmp_path):
    """A gzip file damaged far behind its beginning gives all lines before the damage."""
    data = gzip.compress(b"".join(b"%d\t%d\n" % (i, i * i) for i in range(100_000)))
    path = write(tmp_path / "a.tsv.gz", data[: len(data) // 2])
    lines = open_corpus(path).lines()
    assert len(list(islice(lines, 1000))) == 1000
    with pytest.raises(KnnSeqError, match=r"a\.tsv\.gz cannot be read to its end"):
        list(lines)


DAMAGED = {"nonsense": b"\x1f\x8bnonsense", "the end": gzip.compress(b"a\tb\n" * 99)[:-9] + b"123456789"}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_gzip_file(tmp_path, damage):
    with pytest.raises(KnnSeqError, match="cannot be read to its end"):
        list(open_corpus(write(tmp_path / "a.tsv", damage)))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(KnnSeqError, match=r"There is no file .*a\.tsv\."):
        open_corpus(tmp_path / "a.tsv")
    (tmp_path / "b.tsv").mkdir()
    with pytest.raises(KnnSeqError, match="is a folder"):
        open_corpus(str(tmp_path / "b.tsv"))
    os.mkfifo(tmp_path / "c.tsv")
    with pytest.raises(KnnSeqError, match="is a pipe or device"):
        open_corpus(tmp_path / "c.tsv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either as one file"),
        ({"corpus": "a.tsv", "source": "a"}, "either as one file"),
        ({"source": "a"}, "either as one file"),
        ({"corpus": "a.txt"}, "does not tell its format.*jsonl, text, tsv"),
        ({"corpus": "a.tsv", "format": "tmx"}, "no corpus 'tmx'"),
        ({"corpus": "a.tsv", "format": "text"}, "'text' takes a source file and a target file"),
        ({"source": "a", "target": "b", "format": "tsv"}, "'tsv' takes one file"),
        ({"corpus": "a.tsv", "columns": (1,)}, "two columns"),
        ({"corpus": "a.tsv", "columns": (0, 1)}, "numbers from 1 on"),
        ({"corpus": "a.tsv", "columns": ("pt", "en")}, "numbers from 1 on"),
        ({"corpus": "a.jsonl", "columns": (1, 2)}, "are keys"),
        ({"source": "a", "target": "b", "columns": (1, 2)}, "no columns"),
    ],
)
def test_a_corpus_given_in_a_wrong_way(tmp_path, arguments, message):
    for name in ("a", "b", "a.txt", "a.tsv", "a.jsonl"):
        (tmp_path / name).touch()
    paths = {name: tmp_path / value for name, value in arguments.items() if name in ("corpus", "source", "target")}
    with pytest.raises(KnnSeqError, match=message):
        open_corpus(**{**arguments, **paths})


def test_an_empty_file_is_an_empty_corpus(tmp_path):
    assert list(open_corpus(write(tmp_path / "a.tsv", b""))) == []


def test_identity_tells_files_apart(tmp_path):
    head, tail = os.urandom(1 << 20), os.urandom(1 << 20)
    path = write(tmp_path / "a.tsv", head + b"middle" + tail)
    identity = open_corpus(path).identity()
    assert json.loads(json.dumps(identity)) == identity == open_corpus(path).identity()
    assert open_corpus(path, columns=(2, 1)).identity() != identity
    for changed in (b"X" + head[1:] + b"middle" + tail, head + b"middle" + tail[:-1] + b"\n", head + b"mid" + tail):
        assert open_corpus(write(path, changed)).identity() != identity
    (tmp_path / "b.tsv").write_bytes(head + b"middle" + tail)
    assert open_corpus(tmp_path / "b.tsv").identity() != identity


def test_describe(tmp_path):
    for name in ("a.tsv", "a.pt", "a.en"):
        (tmp_path / name).touch()
    assert open_corpus(tmp_path / "a.tsv").describe() == "a.tsv"
    assert open_corpus(tmp_path / "a.tsv", columns=(2, 3)).describe() == "a.tsv (2, 3)"
    assert open_corpus(source=tmp_path / "a.pt", target=tmp_path / "a.en").describe() == "a.pt and a.en"


@pytest.fixture
def arrows() -> Iterator[None]:
    @CORPUS_FORMATS.register("arrows")
    class ArrowReader(CorpusReader):
        suffixes = (".arrows",)

        def parse(self, lines):
            source, arrow, target = lines[0].partition(" -> ")
            return (source, target) if arrow else "no arrow"

    yield
    del CORPUS_FORMATS._classes["arrows"]


@pytest.mark.usefixtures("arrows")
def test_another_format_is_one_class(tmp_path):
    path = write(tmp_path / "a.ARROWS.gz", b"um -> one\ndois\n", gzipped=True)
    assert list(open_corpus(path)) == [SentencePair("um", "one", 1), BadLine(2, "no arrow")]

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.corpus import CORPUS_FORMATS, BadPair, LineReader, SentencePair, open_corpus
from knn_seq.corpus import lines as corpus_lines
from knn_seq.corpus.pair import EMPTY_SIDE, MISSING_COLUMN, NOT_JSON, NOT_UTF8, TOO_LONG
from knn_seq.errors import DamagedFile


def write(path, data: bytes, gzipped: bool = False):
    path.write_bytes(gzip.compress(data) if gzipped else data)
    return path


def at(line: int, source: str, target: str) -> SentencePair:
    return SentencePair(source, target, f"line {line}")


def units(corpus, start=0):
    """The pairs, good and bad, without the name of their file."""
    return [unit._replace(corpus=None) if isinstance(unit, SentencePair) else unit for unit in corpus.pairs(start)]


def bad(line: int, reason: str) -> BadPair:
    return BadPair(f"line {line}", reason)


sentence = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\ufeff"), max_size=20).map(str.strip)


@settings(max_examples=50, deadline=None)
@given(
    pairs=st.lists(st.tuples(sentence, sentence), max_size=8),
    gzipped=st.booleans(),
    bom=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    last_end=st.booleans(),
    start=st.integers(0, 9),
)
def test_every_format_gives_the_same_pairs(tmp_path_factory, pairs, gzipped, bom, end, last_end, start):
    folder = tmp_path_factory.mktemp("corpus")

    def store(name: str, lines: list[str]):
        text = end.join(lines) + (end if lines and (last_end or not lines[-1]) else "")
        return write(folder / name, (codecs.BOM_UTF8 if bom else b"") + text.encode(), gzipped)

    tsv = store("a.tsv.gz" if gzipped else "a.tsv", [f"{source}\t{target}" for source, target in pairs])
    jsonl = store("a.jsonl", [json.dumps({"source": source, "target": target}) for source, target in pairs])
    source, target = store("a.pt", [pair[0] for pair in pairs]), store("a.en", [pair[1] for pair in pairs])
    expected = [at(line, *pair) if all(pair) else bad(line, EMPTY_SIDE) for line, pair in enumerate(pairs, 1)]
    for corpus in (open_corpus(tsv), open_corpus(jsonl), open_corpus(source=source, target=target)):
        assert units(corpus) == expected
        assert units(corpus, start) == expected[start:]


def test_tsv_columns_and_bad_lines(tmp_path):
    data = b'x\tum\tone\nx\tdois\nx\t \ttwo\n\xff\xfe\tx\ty\nx\t"tr\xc3\xaas\t th"ree \tmore\n\n'
    path = write(tmp_path / "a.tsv", data)
    assert units(open_corpus(path, columns=(2, 3))) == [
        at(1, "um", "one"),
        bad(2, MISSING_COLUMN),
        bad(3, EMPTY_SIDE),
        bad(4, NOT_UTF8),
        at(5, '"três', 'th"ree'),
        bad(6, EMPTY_SIDE),
    ]
    assert units(open_corpus(path, columns=("3", "1")))[0] == at(1, "one", "x")


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
    assert units(open_corpus(path, columns=("translation.pt", "translation.en"))) == [
        at(1, "um", "one"),
        at(2, "dois", "two"),
        *(bad(line, MISSING_COLUMN) for line in (3, 4, 5, 6)),
        bad(7, NOT_JSON),
        bad(8, NOT_JSON),
        bad(9, NOT_UTF8),
        bad(10, EMPTY_SIDE),
        bad(11, EMPTY_SIDE),
    ]


def test_columns_of_id_corpus_and_date(tmp_path):
    rows = ["um\tone\t7\told.tmx\t2026-11-18", "dois\ttwo\t\t\tnever", "três\tthree"]
    path = write(tmp_path / "a.tsv", "\n".join(rows).encode())
    corpus = open_corpus(path, columns=(1, 2, 3, 4, 5))
    assert list(corpus) == [
        at(1, "um", "one")._replace(id="7", corpus="old.tmx", date="2026-11-18T00:00:00Z"),
        at(2, "dois", "two")._replace(corpus=str(path)),
        at(3, "três", "three")._replace(corpus=str(path)),
    ]
    assert [pair.id for pair in open_corpus(path)] == [None] * 3
    assert corpus.describe() == "a.tsv (1, 2, 3, 4, 5)"


def test_keys_of_id_corpus_and_date(tmp_path):
    rows = [
        {"source": "um", "target": "one", "id": 7, "corpus": "old.tmx", "date": "20261118T065000Z"},
        {"source": "um", "target": "one", "id": True, "corpus": None, "date": 5, "meta": {"key": " x "}},
        {"source": "um", "target": "one", "id": "\ud800"},
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)).encode())
    assert list(open_corpus(path)) == [
        at(1, "um", "one")._replace(id="7", corpus="old.tmx", date="2026-11-18T06:50:00Z"),
        at(2, "um", "one")._replace(corpus=str(path)),
        bad(3, NOT_UTF8),
    ]
    other = open_corpus(path, columns=("source", "target", "meta.key"))
    assert [unit.id for unit in other if isinstance(unit, SentencePair)] == [None, "x", None]


def test_unicode_line_separators_do_not_end_a_line(tmp_path):
    path = write(tmp_path / "a.tsv", "a\u2028b\x0cc\x85d\tx\u2029y\n".encode())
    assert units(open_corpus(path)) == [at(1, "a\u2028b\x0cc\x85d", "x\u2029y")]


def test_an_endless_line_is_bad_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_lines, "MAX_LINE_BYTES", 8)
    path = write(tmp_path / "a.tsv", b"ab\tcdef\nab\tcdefg\n" + b"x" * 30 + b"\na\tb\n" + b"y" * 8)
    long = [bad(line, TOO_LONG) for line in (2, 3, 5)]
    assert units(open_corpus(path)) == [at(1, "ab", "cdef"), *long[:2], at(4, "a", "b"), long[2]]


@pytest.mark.parametrize("shorter", ["source", "target"])
def test_text_files_of_different_lengths(tmp_path, shorter):
    files = {
        side: write(tmp_path / side, b"a\nb\n" if side == shorter else b"a\nb\nc\n") for side in ("source", "target")
    }
    pairs = open_corpus(**files).pairs()
    assert len(list(islice(pairs, 2))) == 2
    with pytest.raises(DamagedFile, match=r"source and .*target do not have the same number of lines.* line 3"):
        next(pairs)


def test_a_stream_is_not_read_ahead(tmp_path):
    """A gzip file damaged far behind its beginning gives all lines before the damage."""
    data = gzip.compress(b"".join(b"%d\t%d\n" % (i, i * i) for i in range(100_000)))
    path = write(tmp_path / "a.tsv.gz", data[: len(data) // 2])
    pairs = open_corpus(path).pairs()
    assert len(list(islice(pairs, 1000))) == 1000
    with pytest.raises(DamagedFile, match=r"a\.tsv\.gz cannot be read to its end"):
        list(pairs)


DAMAGED = {"nonsense": b"\x1f\x8bnonsense", "the end": gzip.compress(b"a\tb\n" * 99)[:-9] + b"123456789"}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_gzip_file(tmp_path, damage):
    with pytest.raises(DamagedFile, match="cannot be read to its end"):
        list(open_corpus(write(tmp_path / "a.tsv", damage)))


def test_an_empty_file_is_an_empty_corpus(tmp_path):
    assert units(open_corpus(write(tmp_path / "a.tsv", b""))) == []


@pytest.fixture
def arrows() -> Iterator[None]:
    @CORPUS_FORMATS.register("arrows")
    class ArrowReader(LineReader):
        suffixes = (".arrows",)

        def parse(self, lines):
            source, arrow, target = lines[0].partition(" -> ")
            return (source, target) if arrow else "no arrow"

    yield
    del CORPUS_FORMATS._classes["arrows"]


@pytest.mark.usefixtures("arrows")
def test_another_format_of_lines_is_one_class(tmp_path):
    path = write(tmp_path / "a.ARROWS.gz", b"um -> one\ndois\n", gzipped=True)
    assert units(open_corpus(path)) == [at(1, "um", "one"), bad(2, "no arrow")]

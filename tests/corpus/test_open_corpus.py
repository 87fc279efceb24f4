from __future__ import annotations

import json
import os

import pytest

from knn_seq.corpus import BadPair, SentencePair, open_corpus
from knn_seq.errors import InvalidSetting, NotFound


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(NotFound, match=r"There is no file .*a\.tsv\."):
        open_corpus(tmp_path / "a.tsv")
    with pytest.raises(NotFound, match=r"There is no file .*data\."):
        open_corpus(tmp_path / "data")
    (tmp_path / "b.tsv").mkdir()
    with pytest.raises(NotFound, match=r"no corpus in the folder .*b\.tsv: no file in it ends with .*\.tmx, \.tsv"):
        open_corpus(str(tmp_path / "b.tsv"))
    os.mkfifo(tmp_path / "c.tsv")
    with pytest.raises(InvalidSetting, match="is a pipe or device"):
        open_corpus(tmp_path / "c.tsv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either as files"),
        ({"corpus": "a.tsv", "source": "a"}, "either as files"),
        ({"source": "a"}, "either as files"),
        (
            {"corpus": "a.txt"},
            r"a\.txt does not tell its format: give one of .*jsonl, po, tmx, tsv, xliff as the format \(--format\)",
        ),
        ({"corpus": "a.docx"}, r"There is no reader of \.docx files such as .*a\.docx.*--format"),
        ({"corpus": "a.csv.gz"}, r"There is no reader of \.csv files such as .*a\.csv\.gz"),
        (
            {"source": "a.docx", "target": "b"},
            r"There is no reader of \.docx files such as .*a\.docx.*give one of text",
        ),
        ({"corpus": "a.tsv", "format": "html"}, "no corpus format 'html': choose from .*jsonl, po, text, tmx, tsv"),
        ({"corpus": "a.tsv", "format": "text"}, "'text' takes a source file and a target file"),
        ({"source": "a", "target": "b", "format": "tsv"}, "'tsv' takes one file"),
        ({"corpus": "a.tsv", "columns": (1,)}, "two columns"),
        ({"corpus": "a.tsv", "columns": (0, 1)}, "numbers from 1 on"),
        ({"corpus": "a.tsv", "columns": ("pt", "en")}, "numbers from 1 on"),
        ({"corpus": "a.jsonl", "columns": (1, 2)}, "are keys"),
        ({"source": "a", "target": "b", "columns": (1, 2)}, "no columns"),
        ({"corpus": "a.tsv", "options": {"split": "dev"}}, "TsvReader has no option 'split': it has none"),
    ],
)
def test_a_corpus_given_in_a_wrong_way(tmp_path, arguments, message):
    for name in ("a", "b", "a.txt", "a.tsv", "a.jsonl", "a.csv.gz", "a.docx"):
        (tmp_path / name).touch()
    paths = {name: tmp_path / value for name, value in arguments.items() if name in ("corpus", "source", "target")}
    with pytest.raises(InvalidSetting, match=message):
        open_corpus(**{**arguments, **paths})


def test_the_format_can_be_given_whatever_the_name(tmp_path):
    for name in ("a.txt", "a.jsonl", "a.tmx"):
        (tmp_path / name).write_text("um\tone\n")
        pair = SentencePair("um", "one", "line 1", corpus=str(tmp_path / name))
        assert list(open_corpus(tmp_path / name, format="tsv")) == [pair]


def test_identity_tells_files_apart(tmp_path):
    head, tail = os.urandom(1 << 20), os.urandom(1 << 20)
    path = tmp_path / "a.tsv"
    path.write_bytes(head + b"middle" + tail)
    identity = open_corpus(path).identity()
    assert json.loads(json.dumps(identity)) == identity == open_corpus(path).identity()
    assert open_corpus(path, columns=(2, 1)).identity() != identity
    assert open_corpus(path, format="jsonl").identity() != identity
    for changed in (b"X" + head[1:] + b"middle" + tail, head + b"middle" + tail[:-1] + b"\n", head + b"mid" + tail):
        path.write_bytes(changed)
        assert open_corpus(path).identity() != identity
    (tmp_path / "b.tsv").write_bytes(head + b"middle" + tail)
    assert open_corpus(tmp_path / "b.tsv").identity() != identity


def test_describe(tmp_path):
    for name in ("a.tsv", "a.pt", "a.en"):
        (tmp_path / name).touch()
    assert open_corpus(tmp_path / "a.tsv").describe() == "a.tsv"
    assert open_corpus(tmp_path / "a.tsv", columns=(2, 3)).describe() == "a.tsv (2, 3)"
    assert open_corpus(source=tmp_path / "a.pt", target=tmp_path / "a.en").describe() == "a.pt and a.en"


class TestPairsInMemory:
    def test_pairs_and_bad_pairs(self):
        corpus = open_corpus([("um", " one "), ["dois", ""], ("\ud800", "half"), ("três", "three")])
        expected = [
            SentencePair("um", "one", "pair 1"),
            BadPair("pair 2", "empty side"),
            BadPair("pair 3", "not UTF-8"),
            SentencePair("três", "three", "pair 4"),
        ]
        assert list(corpus) == expected
        assert list(corpus.pairs(2)) == expected[2:]
        assert corpus.describe() == "4 sentence pairs"
        assert open_corpus([("a", "b")]).describe() == "1 sentence pair"

    def test_pairs_of_another_corpus_stay_as_they_are(self):
        pairs = [SentencePair("um", "one", "line 7", (4, 2), (5, 2), "tuid 1")]
        corpus = open_corpus(pairs)
        assert list(corpus) == pairs
        moved = [pairs[0]._replace(place="line 8")]
        assert open_corpus(moved).identity() == corpus.identity()
        assert open_corpus([pairs[0]._replace(source_tokens=None)]).identity() != corpus.identity()

    def test_the_identity_is_that_of_the_content(self):
        identity = open_corpus([("um", "one"), ("dois", "two")]).identity()
        assert json.loads(json.dumps(identity)) == identity == open_corpus((["um", "one"], ["dois", "two"])).identity()
        for other in ([("um", "one")], [("dois", "two"), ("um", "one")], [("um", "one"), ("doi", "stwo")]):
            assert open_corpus(other).identity() != identity

    @pytest.mark.parametrize("pairs", [[["ab"]], [("a", "b"), ("a", "b", "c")], [("a", None)], [7], ["abc", 7]])
    def test_what_is_no_pair_is_named(self, pairs):
        with pytest.raises(InvalidSetting, match=f"which pair {2 if pairs[0] == ('a', 'b') else 1} is not"):
            open_corpus(pairs)

    def test_files_have_no_part_in_it(self):
        with pytest.raises(InvalidSetting, match="are for files"):
            open_corpus([("a", "b")], columns=(1, 2))
        corpus = open_corpus([("a", "b")])
        assert open_corpus(corpus) is corpus
        with pytest.raises(InvalidSetting, match="are for files"):
            open_corpus(corpus, format="tsv")

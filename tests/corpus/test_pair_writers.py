"""What is written in a format is what its reader reads."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from knn_seq.corpus import PAIR_WRITERS, SentencePair, open_corpus
from knn_seq.corpus.dates import iso_date, tmx_date
from knn_seq.errors import InvalidSetting

LANGUAGES = ("pt-BR", "en")
ORIGIN = {"tsv": {"columns": (1, 2, 3, 4, 5)}, "jsonl": {}, "tmx": {}}
NOT_IN_TSV, NOT_IN_XML = "\t\r\n", "".join(map(chr, {*range(32)} - {9, 10, 13})) + "\ufffe\uffff"


def texts(without: str = "", **size: int):
    return st.text(st.characters(codec="utf-8", exclude_characters=without), max_size=12, **size).map(str.strip)


def pairs(without: str = ""):
    some, any = texts(without, min_size=1).filter(bool), texts(without).map(lambda text: text or None)
    dates = st.one_of(st.none(), st.datetimes().map(lambda date: iso_date(f"{date:%Y-%m-%dT%H:%M:%S}".rjust(19, "0"))))
    made = st.builds(SentencePair, some, some, st.just(""), st.none(), st.none(), any, any, dates)
    return st.lists(made, max_size=5)


def write(format: str, given: list[SentencePair], languages=LANGUAGES) -> bytes:
    stream = io.BytesIO()
    PAIR_WRITERS.get(format)().write(given, stream, *languages)
    return stream.getvalue()


def read_back(folder, format: str, given: list[SentencePair]) -> list[SentencePair]:
    """What is read, without the places, and with the name of the file as none."""
    path = folder / f"a.{format}"
    path.write_bytes(write(format, given))
    read = open_corpus(path, **ORIGIN[format])
    return [pair._replace(place="", corpus=None if pair.corpus == str(path) else pair.corpus) for pair in read]


@example(given=[SentencePair("a\r\nb\u2028\x85c", "<&\"'>]]>", "", id="a\t\n\r \"<&>'x", corpus="a\nb\rc")])
@given(given=pairs(NOT_IN_XML))
def test_tmx_round_trip(tmp_path_factory, given):
    assert read_back(tmp_path_factory.mktemp("tmx"), "tmx", given) == given


@given(given=pairs(NOT_IN_TSV))
def test_tsv_round_trip(tmp_path_factory, given):
    assert read_back(tmp_path_factory.mktemp("tsv"), "tsv", given) == given


@example(given=[SentencePair("a\r\nb\t\x00", "c", "")])
@given(given=pairs())
def test_json_lines_round_trip(tmp_path_factory, given):
    assert read_back(tmp_path_factory.mktemp("jsonl"), "jsonl", given) == given


@given(given=pairs())
def test_whatever_tmx_cannot_hold_it_is_well_formed(tmp_path_factory, given):
    path = tmp_path_factory.mktemp("tmx") / "a.tmx"
    path.write_bytes(write("tmx", given))
    assert len(ElementTree.parse(path).findall("body/tu")) == len(given)
    replaced = str.maketrans(dict.fromkeys(NOT_IN_XML, "\ufffd"))
    expected = [(pair.source.translate(replaced).strip(), pair.target.translate(replaced).strip()) for pair in given]
    assert [tuple(pair[:2]) for pair in open_corpus(path)] == expected


def test_replaced_characters_are_logged(caplog):
    write("tmx", [SentencePair("a\x00b\x0c", "c", "")])
    assert caplog.messages == ["2 characters that XML cannot hold became U+FFFD."]


def test_a_tmx_file_as_it_is_written():
    pair = SentencePair("um & dois", "one <&> two", "line 1", id="4711", corpus="old.tmx", date="2026-11-18T06:50:00Z")
    root = ElementTree.fromstring(write("tmx", [pair]))
    header, unit = root.find("header"), root.find("body/tu")
    required = {"creationtool", "creationtoolversion", "segtype", "o-tmf", "adminlang", "srclang", "datatype"}
    assert (root.tag, root.get("version"), set(header.attrib), header.get("srclang")) == (
        "tmx",
        "1.4",
        required,
        "pt-BR",
    )
    assert unit.attrib == {"tuid": "4711", "changedate": "20261118T065000Z"}
    assert [child.tag for child in unit] == ["prop", "tuv", "tuv"]
    assert unit.find("prop").attrib == {"type": "corpus"}
    assert [seg.text for seg in unit.iter("seg")] == ["um & dois", "one <&> two"]
    assert write("tmx", [pair]).startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">')


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ((None, "en"), "names its languages"),
        (("pt", ""), "names its languages"),
        (("pt_BR", "PT-br"), "needs two languages, not pt_BR on both"),
    ],
)
def test_tmx_needs_two_languages(languages, message):
    with pytest.raises(InvalidSetting, match=message):
        write("tmx", [], languages)


def test_tabs_and_line_ends_are_spaces_in_tsv():
    assert write("tsv", [SentencePair("a\tb\r\nc", "d", "", id="x\ny")]) == b"a b c\td\tx y\t\t\n"


def test_json_lines_have_what_is_known():
    assert json.loads(write("jsonl", [SentencePair("é", "e", "", date="2026-11-18T06:50:00Z")])) == {
        "source": "é",
        "target": "e",
        "date": "2026-11-18T06:50:00Z",
    }


def test_an_unknown_format_is_named():
    with pytest.raises(InvalidSetting, match="no format to write 'xliff': choose from jsonl, tmx, tsv"):
        PAIR_WRITERS.get("xliff")


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2026-11-18T06:50:00Z", "2026-11-18T06:50:00Z"),
        ("20261118T065000Z", "2026-11-18T06:50:00Z"),
        ("2026-11-18 07:50+0100", "2026-11-18T06:50:00Z"),
        ("2026-11-18T01:20:30.5-05:30", "2026-11-18T06:50:30Z"),
        (" 2026-11-18 ", "2026-11-18T00:00:00Z"),
        ("0001-01-01T00:00:00+01:00", None),
        ("2026-13-01", None),
        ("YEAR-MO-DA HO:MI+ZONE", None),
        ("", None),
        (None, None),
    ],
)
def test_dates(text, date):
    assert iso_date(text) == date
    assert iso_date(tmx_date(text)) == date

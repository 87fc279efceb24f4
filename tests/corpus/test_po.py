from __future__ import annotations

import gzip
from types import SimpleNamespace

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.corpus import BadPair, SentencePair, open_corpus
from knn_seq.errors import DamagedFile, InvalidSetting

TWO_FORMS = "nplurals=2; plural=(n > 1);"
HEADER = r"""msgid ""
msgstr ""
"PO-Revision-Date: 2026-11-18 07:50+0100\n"
"Language: pt_BR\n"
"Content-Type: text/plain; charset={charset}\n"
"Plural-Forms: {plural}\n"

"""
MESSAGES = r"""#: file.c:1
msgid "Open \"file\"\n"
msgstr ""
"Abrir "
"\"arquivo\"\n"

#, fuzzy, c-format
#| msgid "Closed"
msgid "Close"
msgstr "Fechado"

msgctxt "menu"
msgid "Open"
msgstr "Abrir"

msgctxt "door"
msgid "Open"
msgstr "Aberta"

msgid "Untranslated"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d arquivo"
msgstr[1] "%d arquivos"

#~ msgid "Old"
#~ msgstr "Velho"
"""


def catalogue(messages: str = MESSAGES, plural: str = TWO_FORMS, charset: str = "UTF-8") -> str:
    return HEADER.format(plural=plural, charset=charset) + messages


@pytest.fixture
def read(tmp_path):
    def read(text, model=None, name="a.po", encoding="utf-8", **options):
        path = tmp_path / name
        data = text.encode(encoding)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        corpus = open_corpus(path, options=options)
        if model is not None:
            corpus.bind(SimpleNamespace(source_language=model[0], target_language=model[1]))
        units = list(corpus)
        for start in range(len(units) + 2):
            assert list(corpus.pairs(start)) == units[start:]
        return units

    return read


def texts(units):
    return [tuple(unit[:2]) if isinstance(unit, SentencePair) else unit.reason for unit in units]


@pytest.mark.parametrize("name", ["a.po", "a.pot", "a.po.gz"])
def test_messages_contexts_plurals_and_what_is_left_out(read, tmp_path, name):
    units = read(catalogue(), name=name)
    origin = {"corpus": str(tmp_path / name), "date": "2026-11-18T06:50:00Z"}
    assert units == [
        SentencePair('Open "file"', 'Abrir "arquivo"', "line 8", id='Open "file"\n', **origin),
        BadPair("line 14", "fuzzy"),
        SentencePair("Open", "Abrir", "line 19", id="menu|Open", **origin),
        SentencePair("Open", "Aberta", "line 23", id="door|Open", **origin),
        BadPair("line 27", "empty side"),
        SentencePair("%d file", "%d arquivo", "line 30", id="%d file", **origin),
        SentencePair("%d files", "%d arquivos", "line 30", id="%d file[plural]", **origin),
    ]


def test_fuzzy_ones_are_read_if_asked_for(read):
    assert texts(read(catalogue(), fuzzy="true"))[1] == ("Close", "Fechado")


def test_the_side_to_translate_from(read):
    forward, backward = ("Open", "Abrir"), ("Abrir", "Open")
    assert texts(read(catalogue(), source="msgstr"))[2] == backward
    assert texts(read(catalogue(), source="msgstr"))[6] == ("%d arquivos", "%d files")
    assert texts(read(catalogue(), model=("pt", "en")))[2] == backward
    assert texts(read(catalogue(), model=("en", "pt")))[2] == forward
    assert texts(read(catalogue(), model=(None, None)))[2] == forward
    assert texts(read(catalogue(), model=("pt", "en"), source="msgid"))[2] == forward
    with pytest.raises(InvalidSetting, match="source is msgid or msgstr, not left"):
        read(catalogue(), source="left")


FORMS = {
    "nplurals=1; plural=0;": [("one", "f0")],
    "nplurals=2; plural=(n != 1);": [("one", "f0"), ("many", "f1")],
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);": [
        ("one", "f0"),
        ("many", "f2"),
    ],
    "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);": [
        ("one", "f1"),
        ("many", "f3"),
    ],
    "nplurals=INTEGER; plural=EXPRESSION;": [("one", "f0"), ("many", "f1")],
    "nplurals=2; plural=n%0;": [("one", "f0"), ("many", "f1")],
    "nplurals=2; plural=__import__('os');": [("one", "f0"), ("many", "f1")],
    "nplurals=2; plural=7;": [("one", "f0"), ("many", "f1")],
}


@pytest.mark.parametrize(("plural", "pairs"), FORMS.items(), ids=FORMS)
def test_plural_forms_are_those_of_one_and_of_many(read, plural, pairs):
    forms = "".join(f'msgstr[{number}] "f{number}"\n' for number in range(6))
    assert texts(read(catalogue(f'msgid "one"\nmsgid_plural "many"\n{forms}', plural))) == pairs


@pytest.mark.parametrize(
    ("charset", "encoding"),
    [("ISO-8859-1", "latin-1"), ("UTF-8", "utf-8-sig"), ("CHARSET", "utf-8"), ("windows-1252", "cp1252")],
)
def test_encodings(read, charset, encoding):
    text = catalogue('msgid "heart"\nmsgstr "coração"\n', charset=charset)
    assert texts(read(text, encoding=encoding)) == [("heart", "coração")]


def test_a_catalogue_without_a_header(read):
    assert texts(read('msgid "heart"\nmsgstr "coração"\n')) == [("heart", "coração")]
    assert texts(read('msgid "a"\nmsgid_plural "b"\nmsgstr[0] "c"\nmsgstr[1] "d"\n')) == [("a", "c"), ("b", "d")]
    assert read("") == []


@pytest.mark.parametrize(
    ("text", "encoding", "message"),
    [
        (catalogue('msgid "a"\nmsgstr "b"\nnonsense\n'), "utf-8", r"a\.po cannot be read as a PO file: .*line 10"),
        (catalogue('msgid "a"b"\nmsgstr "b"\n'), "utf-8", "syntax error at line 8: unescaped double quote found"),
        (catalogue('msgid "é"\nmsgstr "b"\n'), "latin-1", "cannot be read as a PO file: 'utf-8' codec"),
    ],
)
def test_a_damaged_catalogue(read, text, encoding, message):
    with pytest.raises(DamagedFile, match=message) as raised:
        read(text, encoding=encoding)
    assert "\n" not in str(raised.value)


message = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=9).filter(str.strip)


@given(messages=st.dictionaries(message, message, max_size=4))
def test_what_polib_writes_is_read(tmp_path_factory, messages):
    path = tmp_path_factory.mktemp("po") / "a.po"
    written = polib.POFile()
    written.extend(polib.POEntry(msgid=source, msgstr=target) for source, target in messages.items())
    written.save(str(path))
    pairs = [(source.strip(), target.strip()) for source, target in messages.items()]
    assert texts(open_corpus(path)) == pairs

"""All that is not text comes out byte for byte."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import BILINGUAL, DOCX, ODT, SAMPLES

from knn_seq.documents import DOCUMENT_FORMATS, Filled, open_document
from knn_seq.errors import DamagedFile, KnnSeqError
from knn_seq.protect import Protector, join

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parent / "fixtures"


def opened(name):
    format, data, options = SAMPLES[name]
    return DOCUMENT_FORMATS.get(format)(data, f"sample.{format}", options)


def unchanged(document):
    return document.filled([Filled(segment.content) for segment in document.segments])


def upper(document):
    """The document in capitals, through the protector."""
    results = Protector(lambda texts: [text.upper() for text in texts]).translate(
        [segment.content for segment in document.segments]
    )
    return document.filled(
        [
            Filled(result.content) if segment.wanted else None
            for segment, result in zip(document.segments, results, strict=True)
        ]
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_filled_is_the_same_file(name):
    document = opened(name)
    assert document.segments
    assert document.filled([None] * len(document.segments)) == SAMPLES[name][1]


@pytest.mark.parametrize("name", [name for name in SAMPLES if SAMPLES[name][0] not in BILINGUAL])
def test_an_identity_model_gives_the_same_file(name):
    document = opened(name)
    assert unchanged(document) == SAMPLES[name][1]
    results = Protector(list).translate([segment.content for segment in document.segments])
    assert document.filled([Filled(result.content) for result in results]) == SAMPLES[name][1]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_filled_file_is_of_its_format_and_has_the_translations(name):
    format, _data, options = SAMPLES[name]
    document = opened(name)
    again = DOCUMENT_FORMATS.get(format)(upper(document), "again", options)
    assert [s.key for s in again.segments] == [s.key for s in document.segments] or format in ("docx", "tmx")
    if format in BILINGUAL:
        filled = [s.existing for s, before in zip(again.segments, document.segments, strict=True) if before.wanted]
        assert all(text and text.strip() for text in filled)
    else:
        words = [re.findall(r"\w+", "".join(p for p in s.content if isinstance(p, str))) for s in again.segments]
        assert any(word.isupper() for some in words for word in some)
        assert not any(word.islower() for some in words for word in some if word not in ("s", "x", "amp"))


@pytest.mark.parametrize(("data", "part"), [(ODT, "content.xml"), (DOCX, "word/document.xml")], ids=["odt", "docx"])
def test_other_parts_of_an_archive_are_copied(data, part):
    format = "odt" if data is ODT else "docx"
    written = upper(DOCUMENT_FORMATS.get(format)(data, "x"))
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(io.BytesIO(written)) as after:
        assert before.namelist() == after.namelist()
        for one, other in zip(before.infolist(), after.infolist(), strict=True):
            assert (one.compress_type, one.date_time) == (other.compress_type, other.date_time)
            assert (before.read(one) == after.read(other)) == (one.filename != part)


def test_runs_of_the_same_format_are_merged_and_others_are_kept():
    document = DOCUMENT_FORMATS.get("docx")(DOCX, "x")
    first, _second = document.segments
    assert "".join(part for part in first.content if isinstance(part, str)) == "Clique em o botão azul."
    with zipfile.ZipFile(io.BytesIO(upper(document))) as archive:
        text = archive.read("word/document.xml").decode()
    assert "<w:b/></w:rPr><w:t>BOTÃO</w:t>" in text
    assert "<w:tab/><w:t>OUTRA FRASE &amp; FIM.</w:t>" in text
    assert "proofErr" not in text


@pytest.mark.parametrize("path", sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]), ids=lambda path: path.name)
def test_pages_of_this_repository_come_out_as_they_are(path):
    document = open_document(path)
    assert document.segments
    assert unchanged(document) == path.read_bytes()


@pytest.mark.parametrize("path", sorted(p for p in FIXTURES.iterdir() if p.name != "README.md"), ids=lambda p: p.name)
def test_real_files_come_out_as_they_are(path):
    document = open_document(path)
    assert len(document.segments) > 10
    assert document.filled([None] * len(document.segments)) == path.read_bytes()
    if path.suffix != ".po":
        assert unchanged(document) == path.read_bytes()


def test_markdown_keeps_its_structure():
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    for path in [ROOT / "README.md", ROOT / "docs/architecture.md", ROOT / "docs/translating.md"]:
        before, after = (
            [token.type for token in parser.parse(text) if not token.children]
            for text in (path.read_text(), upper(open_document(path)).decode())
        )
        assert before == after, path


LETTERS = "abcé Z.!?\n\t\r\"'<>&;#*_[]()`\\{}=:-~|%$/1٣"
MARKUP = st.sampled_from(
    ["<b>", "</b>", "<br>", "<p>", "</p>", "&amp;", "<!--x-->", "**", "`c`", "[a](b)", "# ", "- ", "> ", "\n\n", "a. B"]
)
wild = st.lists(st.one_of(st.text(LETTERS, max_size=12), MARKUP), max_size=12).map("".join)


@pytest.mark.parametrize("format", ["text", "markdown", "html", "subtitles", "po", "json", "properties", "strings"])
@settings(max_examples=60)
@given(text=wild)
def test_whatever_is_in_a_file_it_comes_out_as_it_is_or_is_refused(format, text):
    text = {
        "subtitles": f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n",
        "po": f'msgid "{text}"\nmsgstr ""\n',
        "json": f'{{"a": "{text}"}}',
        "properties": f"a = {text}\n",
        "strings": f'"a" = "{text}";',
    }.get(format, text)
    try:
        document = DOCUMENT_FORMATS.get(format)(text.encode(), "wild")
    except KnnSeqError:
        return
    assert document.filled([None] * len(document.segments)) == text.encode()
    if format != "po":
        assert unchanged(document) == text.encode()
    upper(document)


@pytest.mark.parametrize("format", ["docbook", "xliff", "tmx", "odt", "docx"])
@settings(max_examples=40)
@given(text=st.text(LETTERS.replace("<", "").replace("&", "").replace("\r", ""), min_size=1, max_size=40))
def test_whatever_text_is_in_xml_it_comes_out_as_it_is(format, text):
    from samples import packed

    data = {
        "docbook": lambda: f"<book><para>a {text} <emphasis>{text}</emphasis></para></book>".encode(),
        "xliff": lambda: (
            f'<xliff version="1.2"><trans-unit id="a"><source>a{text}</source></trans-unit></xliff>'.encode()
        ),
        "tmx": lambda: f'<tmx><tu><tuv xml:lang="pt"><seg>a{text}</seg></tuv></tu></tmx>'.encode(),
        "odt": lambda: packed({"content.xml": f"<x><text:p>a{text}</text:p></x>".replace("<x>", '<x xmlns:text="t">')}),
        "docx": lambda: packed({"word/document.xml": f'<w:p xmlns:w="w"><w:r><w:t>a{text}</w:t></w:r></w:p>'}),
    }[format]()
    options = {"source_lang": "pt", "target_lang": "en"} if format == "tmx" else {}
    try:
        document = DOCUMENT_FORMATS.get(format)(data, "wild", options)
    except DamagedFile:
        assert "]]>" in text
        return
    assert document.filled([None] * len(document.segments)) == data
    if format not in BILINGUAL:
        assert unchanged(document) == data
    again = DOCUMENT_FORMATS.get(format)(upper(document), "again", options)
    before, after = (
        [
            letter
            for s in d.segments
            for p in s.content
            if isinstance(p, str)
            for letter in p.upper()
            if letter.isalpha()
        ]
        for d in (document, again)
    )
    assert after == before


def test_every_format_has_a_sample():
    assert {format for format, _, _ in SAMPLES.values()} == set(DOCUMENT_FORMATS.names())


def test_join_gives_the_text_with_its_tags():
    document = opened("html")
    assert any('<i title="dica &quot;boa&quot;">' in join(segment.content) for segment in document.segments)

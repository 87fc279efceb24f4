"""Files that were made to do harm: a clear error, and no memory that grows with what they promise."""

from __future__ import annotations

import io
import resource
import sys
import zipfile

import pytest
from samples import packed

from knn_seq.documents import DOCUMENT_FORMATS, base, open_document, opening, package
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError

LAUGHS = (
    "<!DOCTYPE x [<!ENTITY l0 'lol'>" + "".join(f"<!ENTITY l{i} '{f'&l{i - 1};' * 10}'>" for i in range(1, 12)) + "]>"
)
OUTSIDE = "<!DOCTYPE x [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>"
BODIES = {
    "docbook": "<x><para>&l11; &x;</para></x>",
    "xliff": "<xliff version='1.2'><trans-unit id='a'><source>&l11; &x;</source></trans-unit></xliff>",
    "tmx": "<tmx><tu><tuv xml:lang='pt'><seg>&l11; &x;</seg></tuv></tu></tmx>",
    "odt": "<x><text:p>&l11; &x;</text:p></x>",
    "docx": "<w:p><w:r><w:t>&l11; &x;</w:t></w:r></w:p>",
}


def peak_memory() -> int:
    """The most that this process ever had, in KB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def data_of(format, text):
    parts = {"odt": "content.xml", "docx": "word/document.xml"}
    return packed({parts[format]: text}) if format in parts else text.encode()


def options_of(format):
    return {"source_lang": "pt", "target_lang": "en"} if format == "tmx" else {}


@pytest.mark.parametrize("format", BODIES)
@pytest.mark.parametrize("declared", [LAUGHS, OUTSIDE], ids=["billion laughs", "outside"])
def test_entities_are_refused(format, declared):
    before = peak_memory()
    with pytest.raises(DamagedFile, match="entit"):
        DOCUMENT_FORMATS.get(format)(data_of(format, declared + BODIES[format]), "bad", options_of(format))
    assert peak_memory() - before < 64 << 10  # kilobytes


@pytest.mark.parametrize("format", ["docbook", "xliff"])
def test_deeply_nested_elements_are_refused(format):
    with pytest.raises(DamagedFile, match="inside of each other"):
        DOCUMENT_FORMATS.get(format)(("<xliff>" * 100_000).encode(), "bad")


def test_deeply_nested_json_is_refused():
    with pytest.raises(DamagedFile, match="not JSON"):
        DOCUMENT_FORMATS.get("json")(b"[" * 200_000, "bad")


@pytest.mark.parametrize("format", ["odt", "docx"])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(format, monkeypatch):
    part = "content.xml" if format == "odt" else "word/document.xml"
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(part, "w", force_zip64=True) as member,
    ):
        for _ in range(80):
            member.write(bytes(1 << 20))
    before = peak_memory()
    with pytest.raises(DamagedFile, match="unpacks to more than 64 MB"):
        DOCUMENT_FORMATS.get(format)(file.getvalue(), "bomb")
    assert peak_memory() - before < 32 << 10
    monkeypatch.setattr(package, "LARGEST_CONTENT", 1 << 20)
    with pytest.raises(DamagedFile, match="would unpack to 80 MB"):
        DOCUMENT_FORMATS.get(format)(file.getvalue(), "bomb")


def test_an_archive_that_lies_about_its_size_or_is_cut_is_refused():
    good = packed({"content.xml": "<x/>" + " " * 1000})
    for bad in (good[:-30], good[: len(good) // 2], b"PK\x03\x04", b"", good.replace(b"content.xml", b"kontent.xml")):
        with pytest.raises(DamagedFile):
            DOCUMENT_FORMATS.get("odt")(bad, "bad")


@pytest.mark.parametrize(
    "format", ["text", "markdown", "html", "docbook", "subtitles", "json", "properties", "strings"]
)
def test_a_line_without_an_end_is_refused(format):
    line = "palavra " * (base.LONGEST_TEXT // 4)
    text = {
        "docbook": f"<x><para>{line}</para></x>",
        "subtitles": f"00:00:01,000 --> 00:00:02,000\n{line}",
        "json": f'["{line}"]',
        "properties": f"a={line}",
        "strings": f'a = "{line}";',
    }.get(format, line)
    with pytest.raises(DamagedFile, match="characters without an end"):
        DOCUMENT_FORMATS.get(format)(text.encode(), "bad")


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "huge.txt"
    with open(path, "wb") as file:
        file.truncate(opening.LARGEST_FILE + 1)  # no block of it is on the disk
    before = peak_memory()
    with pytest.raises(InvalidSetting, match="MB"):
        open_document(path)
    assert peak_memory() - before < 16 << 10


@pytest.mark.parametrize("format", DOCUMENT_FORMATS.names())
def test_bytes_that_are_no_text_are_refused(format):
    for data in (b"\xff\xfe\xfa", b"\xc3\x28" * 100, bytes(range(256)) * 4):
        try:
            document = DOCUMENT_FORMATS.get(format)(data, "bad", options_of(format))
        except KnnSeqError:
            continue
        assert document.filled([None] * len(document.segments)) == data

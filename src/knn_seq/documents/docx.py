from __future__ import annotations

import re
from collections.abc import Sequence

from knn_seq.documents.base import DOCUMENT_FORMATS, Filled, Segment
from knn_seq.documents.blocks import Block
from knn_seq.documents.encoding import Encoding, declared_in_xml, decode
from knn_seq.documents.package import PackageDocument
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.documents.text import SOURCE_LANG
from knn_seq.documents.tokens import Token, escaped, xml_tokens
from knn_seq.protect import Role

PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
UNSEEN = ("w:proofErr", "w:lastRenderedPageBreak")  # what Word writes for itself

_FORMAT = re.compile(r"<w:rPr>(?:(?!</w:rPr>).)*</w:rPr>", re.DOTALL)
_RUNS = re.compile(
    r"</w:t>\s*</w:r>\s*<w:r(?:\s[^<>]*)?>\s*(<w:rPr>(?:(?!</w:rPr>).)*</w:rPr>)?\s*<w:t(?:\s[^<>]*)?>", re.DOTALL
)
_TEXT = re.compile(r"<w:t>([^<]*)</w:t>")


class _Part(SplicedDocument):
    """The XML of a text of Word.

    Runs with the same format are one text: when it changes, they are merged.  Others are divided by what is between.
    """

    encoding_errors = "xmlcharrefreplace"
    options = {"source_lang": SOURCE_LANG}

    def _decode(self, data: bytes) -> tuple[str, Encoding]:
        return decode(data, self.name, declared_in_xml(data))

    def _find(self) -> list[Segment]:
        segments: list[Segment] = []
        paragraphs: list[_Paragraph] = []
        formats: list[str] = []  # of the runs that are open
        tokens = xml_tokens(self.text, self.name)
        in_text = False
        for token in tokens:
            name = token.name
            if token.kind == "open" and name == "w:p":
                paragraphs.append(_Paragraph(self.text))
            elif token.kind == "close" and name == "w:p" and paragraphs:
                block = paragraphs.pop().block
                key = f"character {token.start}"
                segments += block.segments(key, self.option_values["source_lang"])
            elif token.kind == "open" and name == "w:t" and paragraphs and token.end > token.start:
                in_text = True
            elif token.kind == "close" and name == "w:t":
                in_text = False
            elif token.kind == "text" and in_text and paragraphs:
                self._require_short(len(paragraphs[-1].block.atoms) + len(token.text), f"character {token.start}")
                paragraphs[-1].add(token, _format_at(formats))
            if name == "w:r":
                formats = [*formats, self._format_of(token)] if token.kind == "open" else formats[:-1]
        return segments

    def _format_of(self, run: Token) -> str:
        match = _FORMAT.match(self.text, run.end)
        return match[0] if match else ""

    def _escaped(self, text: str, segment: Segment) -> str:
        return escaped(text)

    def filled(self, translations: Sequence[Filled | None]) -> bytes:
        """The part; texts that begin or end with a space say that it counts."""
        written = super().filled(translations)
        before = set(_TEXT.findall(self.text))
        text, encoding = decode(written, self.name, declared_in_xml(written))

        def kept(match: re.Match[str]) -> str:
            if match[1] == match[1].strip() or match[1] in before:
                return match[0]
            return f'<w:t xml:space="preserve">{match[1]}</w:t>'

        return encoding.encode(_TEXT.sub(kept, text), self.encoding_errors)


class _Paragraph:
    """The text of a paragraph as its runs are read."""

    def __init__(self, text: str) -> None:
        self.block = Block()
        self._text, self._end, self._format = text, -1, ""

    def add(self, token: Token, format: str) -> None:
        if self._end >= 0 and self._end < token.start:
            between = self._text[self._end : token.start]
            if not (format == self._format and _RUNS.fullmatch(_seen(between))):
                self.block.add_tag(between, Role.DIVIDER, self._end)
        self.block.add_escaped(token.text, token.start, token.end)
        self._end, self._format = token.end, format


def _format_at(formats: Sequence[str]) -> str:
    return formats[-1] if formats else ""


def _seen(between: str) -> str:
    """What is between two runs, without what Word writes for itself."""
    for name in UNSEEN:
        between = re.sub(rf"<{name}(?:\s[^<>]*)?/>", "", between)
    return between


@DOCUMENT_FORMATS.register("docx")
class DocxDocument(PackageDocument):
    """A document of Word: its paragraphs, notes, headers and footers."""

    suffixes = (".docx", ".docm", ".dotx")

    def _is_text(self, part: str) -> bool:
        return PARTS.fullmatch(part) is not None

    def _open(self, data: bytes, part: str) -> SplicedDocument:
        return _Part(data, part, {"source_lang": self.option_values["source_lang"]})

from __future__ import annotations

import re

from knn_seq.documents.base import DOCUMENT_FORMATS, Segment
from knn_seq.documents.encoding import Encoding, decode
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.errors import DamagedFile

_LINE = re.compile(
    r"(?P<blank>[ \t\f]*(?:[#!][^\r\n]*)?(?:\r\n?|\n|$))"
    r"|[ \t\f]*(?P<key>(?:[^\\\s:=]|\\[^\r\n])+)(?:[ \t\f]*[:=][ \t\f]*|[ \t\f]+|(?=[\r\n]|$))"
    r"(?P<value>(?:[^\\\r\n]|\\(?:\r\n?|\n|.|$))*)(?:\r\n?|\n|$)"
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(?:\r\n?|\n)[ \t\f]*|(.))", re.DOTALL)
_MEANING = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_LETTER = re.compile(r"[^\W\d_]")


@DOCUMENT_FORMATS.register("properties")
class PropertiesDocument(SplicedDocument):
    """A properties file of Java: the values of its keys."""

    suffixes = (".properties",)

    def _decode(self, data: bytes) -> tuple[str, Encoding]:
        try:
            return decode(data, self.name)
        except DamagedFile:
            return decode(data, self.name, "iso-8859-1")

    def _find(self) -> list[Segment]:
        segments, place = [], 0
        while place < len(self.text):
            match = _LINE.match(self.text, place)
            if match is None or match.end() == place:
                line = self.text.count("\n", 0, place) + 1
                raise DamagedFile(f"{self.name} is no properties file: line {line} cannot be read.")
            value = _unescaped(match["value"]) if match["blank"] is None else ""
            if _LETTER.search(value):
                segments.append(Segment((value,), match["key"], start=match.start("value"), end=match.end("value")))
            place = match.end()
        return segments

    def _escaped(self, text: str, segment: Segment) -> str:
        text = text.replace("\\", "\\\\")
        for letter, meaning in _MEANING.items():
            text = text.replace(meaning, f"\\{letter}")
        if text[:1] == " ":
            text = f"\\{text}"
        if self.text.isascii() or self.encoding.name == "iso-8859-1":
            text = "".join(letter if letter.isascii() else _utf16(letter) for letter in text)
        return text


def _unescaped(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _MEANING.get(match[2], match[2]) if match[2] else ""

    return _ESCAPE.sub(meaning, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _utf16(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))

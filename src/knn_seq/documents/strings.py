from __future__ import annotations

import re

from knn_seq.documents.base import DOCUMENT_FORMATS, Segment
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.errors import DamagedFile

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PIECE = re.compile(rf"\s+|//[^\n]*|/\*.*?\*/|(?P<key>{_QUOTED}|[\w.$-]+)\s*=\s*(?P<value>{_QUOTED})\s*;", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:[Uu]([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_MEANING = {"n": "\n", "t": "\t", "r": "\r"}
_LETTER = re.compile(r"[^\W\d_]")


@DOCUMENT_FORMATS.register("strings")
class StringsDocument(SplicedDocument):
    """A strings file of Apple's systems: the values of its keys."""

    suffixes = (".strings",)

    def _find(self) -> list[Segment]:
        segments, place = [], 0
        while place < len(self.text):
            match = _PIECE.match(self.text, place)
            if match is None:
                line = self.text.count("\n", 0, place) + 1
                raise DamagedFile(f"{self.name} is no strings file: line {line} cannot be read.")
            value = _unescaped(match["value"][1:-1]) if match["value"] else ""
            if _LETTER.search(value):
                start, end = match.span("value")
                segments.append(Segment((value,), match["key"].strip('"'), start=start + 1, end=end - 1))
            place = match.end()
        return segments

    def _escaped(self, text: str, segment: Segment) -> str:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
        for letter, meaning in _MEANING.items():
            text = text.replace(meaning, f"\\{letter}")
        return text


def _unescaped(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _MEANING.get(match[2], match[2])

    return _ESCAPE.sub(meaning, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

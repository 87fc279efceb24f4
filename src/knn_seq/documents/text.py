from __future__ import annotations

import re

from knn_seq.documents.base import DOCUMENT_FORMATS, Segment
from knn_seq.documents.blocks import Block
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.protect.lines import is_wrapped
from knn_seq.registry import Option

_MARKER = re.compile(r"\s*(?:[-+*•–—]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+")  # of an item of a list
SOURCE_LANG = Option(None, "the language of the text, for the rules of its sentences", str)


@DOCUMENT_FORMATS.register("text")
class TextDocument(SplicedDocument):
    """Plain text: paragraphs between empty lines, wrapped or a line each."""

    suffixes = (".txt", ".text")
    options = {"source_lang": SOURCE_LANG}

    def _find(self) -> list[Segment]:
        segments: list[Segment] = []
        block, before, place = Block(), "", 0
        first = 1
        for number, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+$", self.text), 1):
            if not is_wrapped(before, line):
                segments += block.segments(f"line {first}", self.option_values["source_lang"])
                block, first = Block(), number
            marker = _MARKER.match(line) if not block.atoms else None
            text = line[marker.end() :] if marker else line
            self._require_short(len(block.atoms) + len(text), f"line {first}")
            block.add_text(text, place + len(line) - len(text))
            before, place = line, place + len(line)
        return [*segments, *block.segments(f"line {first}", self.option_values["source_lang"])]

    def _escaped(self, text: str, segment: Segment) -> str:
        return text

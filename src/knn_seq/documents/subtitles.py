from __future__ import annotations

import re

from knn_seq.documents.base import DOCUMENT_FORMATS, Segment
from knn_seq.documents.blocks import Block
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.documents.text import SOURCE_LANG
from knn_seq.protect import Role

_TIMES = re.compile(r"\s*((?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3})\s+-->\s+(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}")
_SPEAKER = re.compile(r"\s*[-–—]\s*")
_MARKUP = re.compile(r"<(/?)([A-Za-z]\w*)[^<>\n]*>|\{\\[^{}\n]*\}|<[\d:.]+>")


@DOCUMENT_FORMATS.register("subtitles")
class SubtitlesDocument(SplicedDocument):
    """Subtitles, SRT and WebVTT: what is read while a time passes."""

    suffixes = (".srt", ".vtt")
    options = {"source_lang": SOURCE_LANG}

    def _find(self) -> list[Segment]:
        segments: list[Segment] = []
        key: str | None = None  # the time that passes; None: this is no text
        block, place = Block(), 0
        for line in re.findall(r"[^\n]*\n|[^\n]+$", self.text):
            times = _TIMES.match(line)
            speaker = _SPEAKER.match(line)
            if times or not line.strip() or speaker:
                segments += block.segments(key or "", self.option_values["source_lang"])
                block = Block()
            if times:
                key = times[1]
            elif not line.strip():
                key = None
            elif key is not None:
                start = speaker.end() if speaker else 0
                self._require_short(len(block.atoms) + len(line), key)
                self._add(block, line[start:], place + start)
            place += len(line)
        return [*segments, *block.segments(key or "", self.option_values["source_lang"])]

    def _add(self, block: Block, line: str, place: int) -> None:
        end = 0
        for match in _MARKUP.finditer(line):
            block.add_text(line[end : match.start()], place + end)
            role = Role.POINT if match[2] is None else Role.CLOSE if match[1] else Role.OPEN
            block.add_tag(match[0], role, place + match.start(), match[2] or "")
            end = match.end()
        block.add_text(line[end:], place + end)

    def _escaped(self, text: str, segment: Segment) -> str:
        return text.replace("-->", "->")

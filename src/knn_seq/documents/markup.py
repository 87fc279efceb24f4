"""Documents in markup: which elements are paragraphs, which stand inside of them."""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cached_property
from html import unescape

from knn_seq.documents.base import Segment
from knn_seq.documents.blocks import Block
from knn_seq.documents.encoding import Encoding, declared_in_xml, decode
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.documents.text import SOURCE_LANG
from knn_seq.documents.tokens import Token, escaped, xml_tokens
from knn_seq.protect import Role

ATTRIBUTE = "@"  # the first letter of an attribute's key


class Element(Enum):
    """What an element is for a translator."""

    BLOCK = "block"  # a paragraph begins and ends with it
    INLINE = "inline"  # it marks words of a paragraph
    WORD = "word"  # it stands for a word, and what is in it is not translated
    POINT = "point"  # it stands between words, and what is in it is not translated
    APART = "apart"  # it stands between words, and has paragraphs of its own: a footnote
    HIDDEN = "hidden"  # what is in it is not translated


class MarkupDocument(SplicedDocument):
    """A document of elements, as tokens."""

    encoding_errors = "xmlcharrefreplace"
    options = {"source_lang": SOURCE_LANG}
    translated_attributes: frozenset[str] = frozenset()

    @abstractmethod
    def _kind(self, token: Token) -> Element:
        """What an element is, by its opening or closing token."""

    def _decode(self, data: bytes) -> tuple[str, Encoding]:
        return decode(data, self.name, declared_in_xml(data))

    def _tokens(self) -> Sequence[Token]:
        return xml_tokens(self.text, self.name)

    def _has_text(self, opened: Sequence[str]) -> bool:
        """Whether text inside of these elements, the outermost first, is text to translate."""
        return True

    def _escaped(self, text: str, segment: Segment) -> str:
        return escaped(text, quote=segment.key.startswith(ATTRIBUTE))

    def _find(self) -> list[Segment]:
        tokens = self._tokens()
        ends = _ends(tokens)
        segments: list[Segment] = []
        blocks, apart = [Block()], list[tuple[int, int]]()  # of each element apart its first and last token
        opened: list[str] = []
        place = 0
        while place < len(tokens):
            token = tokens[place]
            kind = self._kind(token) if token.kind in ("open", "close") else None
            if token.kind == "open":
                segments += self._attributes(token)
            if kind in (Element.WORD, Element.POINT, Element.HIDDEN) and token.kind == "open" and place in ends:
                end = ends[place]
                if kind is Element.HIDDEN:
                    segments += self._segments_of(blocks[-1])
                    blocks[-1] = Block()
                else:
                    for inside in tokens[place + 1 : end]:
                        segments += self._attributes(inside)
                    self._add_tag(blocks[-1], token.start, tokens[end].end, Role(kind.value))
                place = end + 1
                continue
            if apart and apart[-1][1] == place:
                segments += self._segments_of(blocks.pop())
                first = tokens[apart.pop()[0]]
                self._add_tag(blocks[-1], first.start, token.end, Role.POINT)
            elif kind is Element.APART and token.kind == "open" and place in ends:
                apart.append((place, ends[place]))
                blocks.append(Block())
            elif kind is Element.INLINE:
                role = Role.OPEN if token.kind == "open" else Role.CLOSE
                if token.kind == "open" and place not in ends:
                    role = Role.POINT
                if token.end > token.start or role is Role.OPEN:
                    self._add_tag(blocks[-1], token.start, token.end, role, token.name)
                else:
                    self._close_empty(blocks[-1])
            elif kind is not None:
                segments += self._segments_of(blocks[-1])
                blocks[-1] = Block()
            elif token.kind == "text" and self._has_text(opened):
                self._require_short(len(blocks[-1].atoms) + len(token.text), self._line(token.start))
                blocks[-1].add_escaped(token.text, token.start, token.end)
            elif token.kind == "entity":
                self._add_tag(blocks[-1], token.start, token.end, Role.WORD)
            elif token.kind == "other" and not _is_cdata(self.text, token):
                self._add_tag(blocks[-1], token.start, token.end, Role.POINT)
            if token.kind == "open":
                opened.append(token.name)
            elif token.kind == "close" and token.name in opened:
                del opened[len(opened) - 1 - opened[::-1].index(token.name) :]
            place += 1
        for block in blocks:
            segments += self._segments_of(block)
        return segments

    def _segments_of(self, block: Block) -> Iterator[Segment]:
        if block.atoms:
            yield from block.segments(self._line(block.atoms[0].start), self.option_values["source_lang"])

    def _add_tag(self, block: Block, start: int, end: int, role: Role, name: str = "") -> None:
        self._require_short(len(block.atoms), self._line(start))
        block.add_tag(self.text[start:end], role, start, name)

    def _close_empty(self, block: Block) -> None:
        """Let an empty element, which has just been opened, be a single point."""
        atom = block.atoms.pop()
        block.add_tag(self.text[atom.start : atom.end], Role.POINT, atom.start)

    def _line(self, place: int) -> str:
        return f"line {bisect_left(self._line_ends, place) + 1}"

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    def _attributes(self, token: Token) -> Iterator[Segment]:
        """The attributes of an opening token that people read."""
        for name in self.translated_attributes & set(token.attributes) if token.kind == "open" else ():
            raw = self.text[token.start : token.end]
            match = re.search(rf"\s{re.escape(name)}\s*=\s*(\"[^\"]*\"|'[^']*')", raw, re.IGNORECASE)
            if match is None or not re.search(r"[^\W\d_]", unescape(match[1])):
                continue
            value, start = match[1][1:-1], token.start + match.start(1) + 1
            yield Segment((unescape(value),), f"{ATTRIBUTE}{name}", start=start, end=start + len(value))


def _is_cdata(text: str, token: Token) -> bool:
    """The marks of a CDATA section: text that is written anew is escaped, and needs none."""
    return text.startswith(("<![CDATA[", "]]>"), token.start)


def _ends(tokens: Sequence[Token]) -> dict[int, int]:
    """For each opening token that is closed, its closing one."""
    ends: dict[int, int] = {}
    opened: dict[str, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.kind == "open":
            opened.setdefault(token.name, []).append(place)
        elif token.kind == "close" and opened.get(token.name):
            ends[opened[token.name].pop()] = place
    return ends

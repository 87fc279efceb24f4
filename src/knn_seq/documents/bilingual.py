"""Files of units that hold a source and may hold its translation: what XLIFF and TMX have in common."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from html import escape

from knn_seq.documents.base import Filled, Segment
from knn_seq.documents.blocks import Block
from knn_seq.documents.encoding import Encoding, declared_in_xml, decode
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.documents.tokens import Token, escaped
from knn_seq.protect import Content, Role, join


class BilingualDocument(SplicedDocument):
    """An XML file of units.  Their segments are never split: a unit is what a translator sees at once."""

    encoding_errors = "xmlcharrefreplace"

    @abstractmethod
    def _role(self, token: Token) -> tuple[Role, str] | None:
        """The role and the name of an inline element; None: it is unknown, and all of it is one point."""

    def _decode(self, data: bytes) -> tuple[str, Encoding]:
        return decode(data, self.name, declared_in_xml(data))

    def _is_unchanged(self, segment: Segment, filled: Filled) -> bool:
        return False  # a unit has no translation before it is filled

    def _escaped(self, text: str, segment: Segment) -> str:
        return escaped(text)

    def _content(self, tokens: Sequence[Token], first: int, last: int) -> Content:
        """The text between two tokens with its inline elements."""
        block = Block()
        place = first + 1
        while place < last:
            token = tokens[place]
            if token.kind == "text":
                self._require_short(len(block.atoms) + len(token.text), f"at character {token.start}")
                block.add_escaped(token.text, token.start, token.end)
            elif token.kind in ("open", "close"):
                role, name = self._role(token) or (Role.POINT, "")
                if token.kind == "open" and (name == "" or not _is_pair(role, token)):
                    end = closing(tokens, place)
                    block.add_tag(self.text[token.start : tokens[end].end], role, token.start, name)
                    place = end
                else:
                    role = Role.OPEN if token.kind == "open" else Role.CLOSE
                    block.add_tag(self.text[token.start : token.end], role, token.start, name)
            elif token.kind == "entity":
                block.add_tag(self.text[token.start : token.end], Role.WORD, token.start)
            place += 1
        return block.content()


def _is_pair(role: Role, token: Token) -> bool:
    """Whether what is inside of the element is text."""
    return role is Role.OPEN and local(token.name) in TEXT_INSIDE


TEXT_INSIDE = frozenset({"g", "mrk", "pc", "hi"})


def local(name: str) -> str:
    """The name of an element without its prefix."""
    return name.rpartition(":")[2]


def closing(tokens: Sequence[Token], place: int) -> int:
    """The token that closes the element which another opens."""
    depth = 0
    for number in range(place, len(tokens)):
        depth += {"open": 1, "close": -1}.get(tokens[number].kind, 0)
        if depth == 0:
            return number
    raise AssertionError("well-formed XML closes what it opens")


def children(tokens: Sequence[Token], first: int, last: int) -> Iterator[tuple[int, int]]:
    """The first and last tokens of the elements that stand directly in another."""
    place = first + 1
    while place < last:
        if tokens[place].kind == "open":
            end = closing(tokens, place)
            yield place, end
            place = end
        place += 1


def with_attributes(tag: str, **values: str) -> str:
    """An opening tag with attributes set, in the place that they had or behind the others."""
    for name, value in values.items():
        written = f'{name}="{escape(value)}"'
        pattern = re.compile(rf"(?<=\s){re.escape(name)}\s*=\s*(?:\"[^\"]*\"|'[^']*')")
        if pattern.search(tag):
            tag = pattern.sub(lambda _, written=written: written, tag, count=1)  # type: ignore[misc]
        else:
            tag = re.sub(r"\s*(/?>)$", lambda end, written=written: f" {written}{end[1]}", tag, count=1)  # type: ignore[misc]
    return tag


def spaces_before(text: str, place: int) -> str:
    """The spaces and line breaks that end at a place."""
    start = place
    while start and text[start - 1].isspace():
        start -= 1
    return text[start:place]


def is_empty(content: Content) -> bool:
    """Whether there is nothing to read in a content."""
    return not join(content).strip()


def origin_word(origin: str) -> str:
    """An origin as one word for an attribute: "neighbours 40 %" is neighbours-40."""
    return "-".join(re.findall(r"\w+", origin))

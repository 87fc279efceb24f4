"""The paragraphs of a page of HTML or of Mallard, GNOME's XML for help."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple

from debian_text import one_line

PARAGRAPHS = frozenset({"p", "title", "desc", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "td", "th", "li"})
NO_TEXT = frozenset({"script", "style", "pre", "info", "screen"})


class Block(NamedTuple):
    """A paragraph."""

    tag: str
    id: str
    text: str


class _Paragraphs(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []
        self._open: list[tuple[str, str, list[str]]] = []  # paragraphs that have begun, with their texts so far
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in NO_TEXT:
            self._hidden.append(tag)
        elif tag in PARAGRAPHS:
            if self._open and tag == self._open[-1][0] == "p":  # HTML lets a new one end the last
                self.handle_endtag("p")
            self._open.append((tag, dict(attrs).get("id") or "", []))
        elif tag == "br" and self._open:
            self._open[-1][2].append(" ")

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[-1]:
            self._hidden.pop()
        elif any(tag == begun for begun, *_ in self._open):
            ended = ""
            while ended != tag:
                ended, identifier, parts = self._open.pop()
                self.blocks.append(Block(ended, identifier, one_line(parts)))

    def end(self) -> None:
        """End what is still open."""
        if self._open:
            self.handle_endtag(self._open[0][0])

    def handle_data(self, data: str) -> None:
        if self._open and not self._hidden:
            self._open[-1][2].append(data)


def blocks_of(page: str) -> list[Block]:
    """The paragraphs of a page in the order of their ends, those without text too."""
    parser = _Paragraphs()
    parser.feed(page)
    parser.close()
    parser.end()
    return parser.blocks

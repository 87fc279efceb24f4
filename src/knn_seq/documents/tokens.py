"""XML and HTML as tokens with their places, so that what is between two of them can be copied as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import unescape
from html.parser import HTMLParser
from typing import NamedTuple
from xml.parsers import expat

from knn_seq.errors import DamagedFile

DEEPEST = 500  # elements inside of each other

_EMPTY = re.compile(r"/\s*>$")


class Token(NamedTuple):
    """A piece of markup or of text."""

    kind: str  # "open", "close", "text", "entity" (one that the file does not explain), "other"
    start: int
    end: int
    name: str = ""
    text: str = ""  # of a text, as people read it
    attributes: Mapping[str, str | None] = {}


def xml_tokens(text: str, name: str) -> list[Token]:
    """The tokens of an XML file; an empty element is an opening token and a closing one without length.

    Nothing outside of the file is read, and a file that declares entities is refused.

    Args:
        text: The file's text.
        name: The file's name.
    """
    data = text.encode("utf-8", "surrogatepass")
    events: list[tuple[int, str, str, str, Mapping[str, str | None]]] = []
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = False
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    depth = 0

    def add(kind: str, element: str = "", read: str = "", attributes: Mapping[str, str | None] = {}) -> None:  # noqa: B006
        events.append((parser.CurrentByteIndex, kind, element, read, attributes))

    def opened(element: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise DamagedFile(f"{name} has more than {DEEPEST} elements inside of each other.")
        add("open", element, "", attributes)

    def closed(element: str) -> None:
        nonlocal depth
        depth -= 1
        add("close", element)

    def declared(*_: object) -> None:
        raise DamagedFile(f"{name} declares entities of its own, which is not allowed: replace them by their text.")

    parser.StartElementHandler, parser.EndElementHandler = opened, closed
    parser.CharacterDataHandler = lambda read: add("text", read=read)
    parser.CommentHandler = lambda _: add("other")
    parser.ProcessingInstructionHandler = lambda *_: add("other")
    parser.StartCdataSectionHandler = lambda: add("other")
    parser.EndCdataSectionHandler = lambda: add("other")
    parser.EntityDeclHandler = declared
    parser.SkippedEntityHandler = lambda *_: add("entity")
    parser.DefaultHandler = lambda _: add("other")
    parser.StartDoctypeDeclHandler = lambda *_: add("other")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise DamagedFile(f"{name} is not well-formed XML: {error}.") from error
    return _with_ends(events, data, len(text) == len(data))


def _with_ends(
    events: list[tuple[int, str, str, str, Mapping[str, str | None]]], data: bytes, ascii_only: bool
) -> list[Token]:
    """Places in bytes to places in text; a token ends where the next begins."""
    tokens: list[Token] = []
    place = letters = 0
    for number, (start, kind, name, read, attributes) in enumerate(events):
        end = events[number + 1][0] if number + 1 < len(events) else len(data)
        letters += len(data[place:start].decode("utf-8", "surrogatepass"))
        length = end - start if ascii_only else len(data[start:end].decode("utf-8", "surrogatepass"))
        place = start
        tokens.append(Token(kind, letters, letters + length, name, read, attributes))
    return tokens


def html_tokens(text: str) -> list[Token]:
    """The tokens of an HTML page, which need not be valid."""
    parser = _HtmlPlaces(text)
    parser.feed(text)
    parser.close()
    return parser.tokens()


class _HtmlPlaces(HTMLParser):
    """Writes down which events there are, and where."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._text = text
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._events: list[tuple[int, str, str, str, Mapping[str, str | None]]] = []

    def _add(self, kind: str, name: str = "", read: str = "", attributes: Iterable[tuple[str, str | None]] = ()) -> None:
        line, column = self.getpos()
        self._events.append((self._lines[line - 1] + column, kind, name, read, dict(attributes)))

    def tokens(self) -> list[Token]:
        """The tokens with their ends."""
        made = []
        for number, (start, kind, name, read, attributes) in enumerate(self._events):
            end = self._events[number + 1][0] if number + 1 < len(self._events) else len(self._text)
            made.append(Token(kind, start, end, name, read, attributes))
        return made

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("open", tag, "", attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("open", tag, "", attrs)

    def handle_endtag(self, tag: str) -> None:
        self._add("close", tag)

    def handle_data(self, data: str) -> None:
        self._add("text", "", data)

    def handle_entityref(self, name: str) -> None:
        self._add("text", "", unescape(f"&{name};"))

    def handle_charref(self, name: str) -> None:
        self._add("text", "", unescape(f"&#{name};"))

    def handle_comment(self, data: str) -> None:
        self._add("other")

    def handle_decl(self, decl: str) -> None:
        self._add("other")

    def handle_pi(self, data: str) -> None:
        self._add("other")

    def unknown_decl(self, data: str) -> None:
        self._add("other")

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
LONGEST_ENTITY = 10_000  # characters of the text that an entity stands for

_EMPTY = re.compile(r"/\s*>$")


def names(text: str) -> frozenset[str]:
    """The names of elements, written with spaces between them."""
    return frozenset(text.split())


class Token(NamedTuple):
    """A piece of markup or of text."""

    kind: str  # "open", "close", "text", "entity" (one that the file does not explain), "other"
    start: int
    end: int
    name: str = ""
    text: str = ""  # of a text, as people read it
    attributes: Mapping[str, str | None] = {}


def xml_tokens(text: str, name: str, entities: bool = False) -> list[Token]:
    """The tokens of an XML file; an empty element is an opening token and a closing one without length.

    Nothing outside of the file is read, and no entity is replaced by its text.

    Args:
        text: The file's text.
        name: The file's name.
        entities: The file may declare entities of its own, short ones that are in it; else one that does is refused.
    """
    data = text.encode("utf-8", "surrogatepass")
    events: list[tuple[int, str, str, str, Mapping[str, str | None]]] = []
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = False
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    depth = 0

    def add(kind: str, element: str = "", read: str = "", attributes: Mapping[str, str | None] = {}) -> None:
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

    declared = _Entities(name, entities)

    parser.StartElementHandler, parser.EndElementHandler = opened, closed
    parser.CharacterDataHandler = lambda read: add("text", read=read)
    parser.CommentHandler = lambda _: add("other")
    parser.ProcessingInstructionHandler = lambda *_: add("other")
    parser.StartCdataSectionHandler = lambda: add("other")
    parser.EndCdataSectionHandler = lambda: add("other")
    parser.EntityDeclHandler = declared.declare
    parser.SkippedEntityHandler = lambda *_: add("entity")
    # With such a handler, entities that the file declares are not replaced either, but handed to it.
    parser.DefaultHandler = lambda read: add("entity" if read.startswith("&") else "other")
    parser.StartDoctypeDeclHandler = lambda *_: add("other")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise DamagedFile(f"{name} is not well-formed XML: {error}.") from error
    declared.require_short()
    return _with_ends(events, data, len(text) == len(data))


class _Entities:
    """The entities that a file declares, and whether they are harmless."""

    def __init__(self, name: str, allowed: bool) -> None:
        self._name, self._allowed = name, allowed
        self._values: dict[str, str] = {}

    def declare(
        self, entity: str, parameter: bool, value: str | None, base: str | None, system: str, *_: object
    ) -> None:
        """Take note of one; a `DamagedFile` if it is not allowed."""
        if not self._allowed or (value is None and not parameter):
            where = f", such as {system}" if system else ""
            raise DamagedFile(
                f"{self._name} declares entities{where}, which is not allowed: replace them by their text."
            )
        if not parameter:
            self._values.setdefault(entity, value or "")

    def require_short(self) -> None:
        """Raise a `DamagedFile` if an entity would become a long text by those that are named in it."""
        lengths: dict[str, int] = {}

        def length(entity: str, above: tuple[str, ...]) -> int:
            if entity in above or len(above) > DEEPEST:
                return LONGEST_ENTITY + 1
            if entity not in lengths:
                value = self._values.get(entity, "")
                inside = sum(length(other, (*above, entity)) for other in re.findall(r"&([^\s&;#]+);", value))
                lengths[entity] = min(len(value) + inside, LONGEST_ENTITY + 1)
            return lengths[entity]

        for entity in self._values:
            if length(entity, ()) > LONGEST_ENTITY:
                raise DamagedFile(
                    f"{self._name} declares the entity '{entity}', which would become a text without end."
                )


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

    def _add(
        self, kind: str, name: str = "", read: str = "", attributes: Iterable[tuple[str, str | None]] = ()
    ) -> None:
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

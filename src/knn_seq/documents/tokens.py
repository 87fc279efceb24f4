"""XML and HTML as tokens with their places, so that what is between two of them can be copied as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape, unescape
from typing import NamedTuple
from xml.parsers import expat

from knn_seq.errors import DamagedFile

DEEPEST = 500  # elements inside of each other
LONGEST_ENTITY = 10_000  # characters of the text that an entity stands for

RAW_TEXT = frozenset({"script", "style"})  # nothing in them is markup

_NO_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_HTML_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*)")
_HTML_REST = re.compile(r"(?:[^\"'>]|\"[^\"]*\"|'[^']*')*>")
_HTML_ATTRIBUTE = re.compile(r"([^\s=\"'/>]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'>]+))?")


def names(text: str) -> frozenset[str]:
    """The names of elements, written with spaces between them."""
    return frozenset(text.split())


def escaped(text: str, quote: bool = False) -> str:
    """Text as it is written in XML and HTML, without the characters that have no place there.

    Args:
        text: The text.
        quote: It stands in an attribute.
    """
    return escape(_NO_CHARACTER.sub("", text), quote)


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
    """The tokens of an HTML page, which need not be valid; each letter is looked at a fixed number of times."""
    tokens: list[Token] = []
    place = 0
    while place < len(text):
        start = text.find("<", place)
        start = len(text) if start < 0 else start
        tokens += _html_text(text, place, start)
        if start == len(text):
            break
        token = _html_markup(text, start)
        if token is None:  # no markup, but a "less than"
            tokens.append(Token("text", start, start + 1, text="<"))
            place = start + 1
            continue
        tokens.append(token)
        place = token.end
        if token.kind == "open" and token.name in RAW_TEXT:
            closing = re.compile(rf"</{token.name}(?=[\s/>])", re.IGNORECASE).search(text, place)
            end = closing.start() if closing else len(text)
            tokens += [Token("other", place, end)] if end > place else []
            place = end
    return tokens


def _html_text(text: str, start: int, end: int) -> Iterator[Token]:
    for match in _ENTITY.finditer(text, start, end):
        if match.start() > start:
            yield Token("text", start, match.start(), text=text[start : match.start()])
        yield Token("text", *match.span(), text=unescape(match[0]))
        start = match.end()
    if end > start:
        yield Token("text", start, end, text=text[start:end])


def _html_markup(text: str, start: int) -> Token | None:
    """The tag, comment or declaration that begins with a "less than"; None if none does."""
    if text.startswith("<!--", start):
        end = text.find("-->", start + 4)
        return Token("other", start, len(text) if end < 0 else end + 3)
    end = text.find(">", start)
    if end < 0:
        return None
    if text.startswith(("<!", "<?"), start):
        return Token("other", start, end + 1)
    tag = _HTML_TAG.match(text, start)
    if tag is None:
        return None
    whole = _HTML_REST.match(text, tag.end())
    end = whole.end() if whole else end + 1  # a quote that is never closed: up to where a tag may end
    attributes = {
        match[1].lower(): unescape(match[2].strip("\"'")) if match[2] else None
        for match in _HTML_ATTRIBUTE.finditer(text, tag.end(), end - 1)
    }
    return Token("close" if tag[1] else "open", start, end, tag[2].lower(), attributes=attributes)

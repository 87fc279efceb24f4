"""XML of any origin as a stream of elements: no entities, no network, and memory that does not grow with the file."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO
from xml.parsers import expat

from knn_seq.corpus.files import reading
from knn_seq.errors import DamagedFile

CHUNK_BYTES = 1 << 16
MOST_MARKUP_BYTES = 1 << 20  # of a tag with its attributes, of a comment, of all before the first tag
MOST_CHARACTERS = 1 << 20  # of an element that is given complete
ELEMENT_CHARACTERS = 64  # what an element inside counts for, so that many empty ones do not fill the memory either
MOST_LEVELS = 200
MOST_NAMES = 10_000  # expat keeps every name of an element or attribute that it has seen
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"


class Element:
    """An element with its attributes and, if it was read to its end, its content.

    A name is the local one in the namespace of the root element, and "{URI}name" in any other.  Attributes without a
    namespace have their name, those of XML itself "xml:lang", all others "{URI}name".
    """

    __slots__ = ("attributes", "content", "line", "name", "too_long")

    def __init__(self, name: str, attributes: dict[str, str], line: int) -> None:
        self.name, self.attributes, self.line = name, attributes, line
        self.content: list[str | Element] = []
        self.too_long = False  # it had more than `MOST_CHARACTERS`, and its content was dropped

    def children(self, name: str) -> Iterator[Element]:
        """The elements of that name right inside of this one."""
        return (child for child in self.content if not isinstance(child, str) and child.name == name)

    def child(self, name: str) -> Element | None:
        """The first of them."""
        return next(self.children(name), None)

    def descendants(self, name: str) -> Iterator[Element]:
        """The elements of that name at any depth inside of this one, but for those inside of each other."""
        for child in self.content:
            if isinstance(child, str):
                continue
            if child.name == name:
                yield child
            else:
                yield from child.descendants(name)

    def text(self, without: Collection[str] = ()) -> str:
        """All text inside of it, but for that of elements of some names."""
        return "".join(
            part if isinstance(part, str) else "" if part.name in without else part.text(without)
            for part in self.content
        )


def read_elements(path: Path, complete: Collection[str]) -> Iterator[Element]:
    """The elements of a file, gzipped or not, in its order.

    Args:
        path: The file, in UTF-8, UTF-16 or another encoding of one byte a character that it declares.
        complete: Names of elements that are given when they end, with all that is in them; those inside are given with
            them and not by themselves.  All others are given when they begin, without content.
    """
    with reading(path) as file:
        yield from _Reader(path, complete).elements(file)


class _Reader:
    def __init__(self, path: Path, complete: Collection[str]) -> None:
        self.path, self.complete = path, complete
        self._names: dict[str, str] = {}
        self._root_namespace: str | None = None
        self._levels = 0
        self._open: list[Element] = []  # the element that is being completed, and those open inside of it
        self._characters = 0
        self._ready: list[Element] = []

    def elements(self, file: IO[bytes]) -> Iterator[Element]:
        """Parse a file chunk by chunk."""
        chunk, end = file.read(CHUNK_BYTES), 0
        self._parser = self._make_parser(chunk)
        while chunk:
            end += len(chunk)
            self._parse(chunk)
            yield from self._given()
            if end - max(self._parser.CurrentByteIndex, 0) > MOST_MARKUP_BYTES:  # what expat keeps of a tag
                raise self._refusal(f"it has a tag or comment of more than {MOST_MARKUP_BYTES >> 20} MiB")
            if end > MOST_MARKUP_BYTES and self._root_namespace is None:
                raise self._refusal(f"it has no element in its first {MOST_MARKUP_BYTES >> 20} MiB")
            if len(self._parser.intern) > MOST_NAMES:
                raise self._refusal(f"it has more than {MOST_NAMES:,} different names of elements and attributes")
            chunk = file.read(CHUNK_BYTES)
        self._parse(b"", last=True)
        yield from self._given()

    def _make_parser(self, beginning: bytes) -> expat.XMLParserType:
        encoding = None  # the declaration tells; but a byte-order mark cannot err, and a declaration can
        if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        elif beginning.startswith(codecs.BOM_UTF8):
            encoding = "utf-8"
        parser = expat.ParserCreate(encoding, namespace_separator=" ")
        parser.buffer_text = True
        parser.specified_attributes = True  # a declaration of attributes must not put text into every element
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._refuse_declaration
        parser.ExternalEntityRefHandler = self._refuse_reference
        parser.SkippedEntityHandler = self._refuse_reference
        return parser

    def _parse(self, chunk: bytes, last: bool = False) -> None:
        try:
            self._parser.Parse(chunk, last)
        except expat.ExpatError as error:
            raise DamagedFile(
                f"{self.path} is no well-formed XML at line {error.lineno:,}, column {error.offset + 1:,}: "
                f"{expat.ErrorString(error.code)}."
            ) from error
        except (LookupError, ValueError) as error:
            if isinstance(error, DamagedFile):
                raise
            raise DamagedFile(
                f"{self.path} is in an encoding that cannot be read ({error}): convert it to UTF-8."
            ) from error

    def _given(self) -> Iterator[Element]:
        ready, self._ready = self._ready, []
        return iter(ready)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise self._refusal(f"elements are nested more than {MOST_LEVELS} levels deep")
        element = Element(self._element_name(name), attributes, self._parser.CurrentLineNumber)
        if attributes:
            element.attributes = {_attribute_name(key): value for key, value in attributes.items()}
        if self._open:
            self._open[-1].content.append(element)
            self._open.append(element)
            self._count(ELEMENT_CHARACTERS + sum(map(len, attributes.values())))
        elif element.name in self.complete:
            self._open, self._characters = [element], 0
        else:
            self._ready.append(element)

    def _end(self, name: str) -> None:
        self._levels -= 1
        if self._open:
            element = self._open.pop()
            if not self._open:
                self._ready.append(element)

    def _text(self, text: str) -> None:
        if self._open:
            self._open[-1].content.append(text)
            self._count(len(text))

    def _count(self, characters: int) -> None:
        self._characters += characters
        if self._characters > MOST_CHARACTERS:
            self._open[0].too_long = True
            for element in self._open:
                element.content.clear()

    def _element_name(self, name: str) -> str:
        known = self._names.get(name)
        if known is None:
            namespace, _, local = name.rpartition(" ")
            if self._root_namespace is None:
                self._root_namespace = namespace
            known = self._names[name] = local if namespace == self._root_namespace else f"{{{namespace}}}{local}"
        return known

    def _refuse_declaration(self, name: str, *others: object) -> None:
        raise self._refusal(f"it declares the entity '{name}', and entities are not expanded: remove the declaration")

    def _refuse_reference(self, name: str | None, *others: object) -> int:
        raise self._refusal(f"it refers to the entity '{name}', which is not in it: replace it by its text")

    def _refusal(self, reason: str) -> DamagedFile:
        return DamagedFile(f"{self.path} cannot be read beyond line {self._parser.CurrentLineNumber:,}: {reason}.")


@lru_cache(MOST_NAMES)
def _attribute_name(name: str) -> str:
    namespace, _, local = name.rpartition(" ")
    if not namespace:
        return local
    return f"xml:{local}" if namespace == XML_NAMESPACE else f"{{{namespace}}}{local}"

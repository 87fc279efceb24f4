"""Glossaries in TBX: the `martif` of its version 2, and version 3 in both of its styles."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from knn_seq.corpus.files import open_bytes, require_file
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.glossary.term import Term

ENTRY, LANGUAGE, DESIGNATION = ("termEntry", "conceptEntry"), ("langSet", "langSec"), ("tig", "ntig", "termSec")
# What a file says of a term that must not be used.
FORBIDDEN = ("deprecated", "superseded", "notRecommended", "rejected", "obsolete", "forbidden")
CHUNK, DEEPEST, LONGEST = 1 << 16, 64, 10_000  # bytes read at once; elements in each other; characters of a text


@dataclass
class _Designation:
    """What a concept is called, in one language."""

    text: str = ""
    part_of_speech: str | None = None
    case_sensitive: bool = False
    forbidden: bool = False


class _Entry(NamedTuple):
    languages: dict[str, list[_Designation]]


def is_tbx(path: Path) -> bool:
    """Whether a file is XML, by what it begins with."""
    require_file(path)
    try:
        with open_bytes(path) as file:
            head = file.read(256).lstrip(b"\xef\xbb\xbf \t\r\n")
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedFile(f"{path} cannot be read: {error}.") from error
    return head.startswith((b"<?xml", b"<martif", b"<tbx", b"<!DOCTYPE", b"\xff\xfe<", b"\xfe\xff\x00<"))


def read_tbx(path: Path, source_lang: str | None, target_lang: str | None) -> tuple[list[Term], str, str]:
    """The terms of a file, and its codes of the two languages.

    Args:
        path: The file.
        source_lang: The language of the sources; None: whichever of two it is that the target is not.
        target_lang: The language of the targets; None: whichever of two it is that the source is not.
    """
    entries = list(_entries(path))
    found = sorted({language for entry in entries for language in entry.languages})
    source, target = _chosen(path, found, source_lang, target_lang)
    terms = []
    for entry in entries:
        targets = entry.languages.get(target, [])
        wanted = [one for one in targets if not one.forbidden]
        forbidden = tuple(one.text for one in targets if one.forbidden)
        for one in entry.languages.get(source, []):
            sensitive = one.case_sensitive or any(other.case_sensitive for other in targets)
            if wanted:
                kind = one.part_of_speech or wanted[0].part_of_speech
                terms += [Term(one.text, each.text, sensitive, kind, forbidden=forbidden) for each in wanted]
            elif forbidden:
                terms.append(Term(one.text, "", sensitive, one.part_of_speech, forbidden=forbidden))
    return terms, source, target


def _chosen(path: Path, found: list[str], source: str | None, target: str | None) -> tuple[str, str]:
    names = ", ".join(found) or "none"
    chosen = [_fitting(found, language) for language in (source, target)]
    if len(found) == 2 and chosen.count(None) == 1:
        chosen = [language or next(other for other in found if other not in chosen) for language in chosen]
    if None in chosen or chosen[0] == chosen[1]:
        raise InvalidSetting(
            f"{path} has terms in the languages {names}: say which are the source's and the target's "
            "(source_lang and target_lang, or `knn-seq glossary STORE import FILE --source-lang … --target-lang …`)."
        )
    return str(chosen[0]), str(chosen[1])


def _fitting(found: list[str], wanted: str | None) -> str | None:
    """The language of a file that is meant: "pt" may be its "pt-BR", and the other way round."""
    if wanted is None:
        return None
    name = wanted.lower().replace("_", "-")
    same = [language for language in found if language.lower() == name]
    alike = [language for language in found if language.lower().split("-")[0] == name.split("-")[0]]
    return (same or alike or [None])[0]  # type: ignore[list-item]


def _entries(path: Path) -> Iterator[_Entry]:
    reader = _Reader()
    try:
        with open_bytes(path) as file:
            while chunk := file.read(CHUNK):
                reader.feed(chunk)
                yield from reader.take()
            reader.feed(b"", last=True)
            yield from reader.take()
    except (expat.ExpatError, OSError, EOFError, zlib.error) as error:
        raise DamagedFile(f"{path} is no TBX file: {error}.") from error
    except _Refused as error:
        raise DamagedFile(f"{path} is refused: {error}.") from error
    if not reader.is_tbx:
        raise DamagedFile(f"{path} is XML, but no TBX file: it has neither termEntry nor conceptEntry.")


class _Refused(Exception):
    """The file has what no glossary has and only an attack needs."""


@dataclass
class _Reader:
    """Takes concepts out of a stream; entities are refused, and nothing but the stream is ever read."""

    is_tbx: bool = False
    _done: list[_Entry] = field(default_factory=list)
    _path: list[str] = field(default_factory=list)
    _entry: _Entry | None = None
    _language: str = ""
    _designation: _Designation | None = None
    _note: str = ""  # the type of the note that is being read
    _text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._parser: Any = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse
        self._parser.ExternalEntityRefHandler = self._refuse

    def feed(self, chunk: bytes, last: bool = False) -> None:
        self._parser.Parse(chunk, last)

    def take(self) -> list[_Entry]:
        done, self._done = self._done, []
        return done

    def _refuse(self, *_: Any) -> int:
        raise _Refused("it declares entities of its own")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        self._path.append(name)
        if len(self._path) > DEEPEST:
            raise _Refused("its elements lie too deep in each other")
        if name in ENTRY:
            self.is_tbx, self._entry = True, _Entry({})
        elif name in LANGUAGE:
            self._language = attributes.get("xml:lang", "")
        elif name in DESIGNATION:
            self._designation = _Designation()
        if name in ("term", "termNote"):
            self._note, self._text = attributes.get("type", name), []
        elif self._designation is not None:  # version 3 in the style that has an element for each kind of note
            self._note, self._text = name, []

    def _characters(self, text: str) -> None:
        if self._designation is not None and self._note:
            self._text.append(text)
            if sum(map(len, self._text)) > LONGEST:
                raise _Refused("it has a term of more than ten thousand characters")

    def _end(self, name: str) -> None:
        name = self._path.pop()
        if name in ENTRY and self._entry is not None:
            self._done.append(self._entry)
            self._entry = None
        elif name in DESIGNATION and self._designation is not None:
            if self._entry is not None and self._language and self._designation.text:
                self._entry.languages.setdefault(self._language, []).append(self._designation)
            self._designation = None
        elif self._designation is not None and self._note:
            self._read(name, " ".join("".join(self._text).split()))
            if name in ("term", "termNote") or name == self._note:
                self._note = ""

    def _read(self, name: str, text: str) -> None:
        assert self._designation is not None
        if name == "term":
            self._designation.text = text
        elif self._note == "partOfSpeech":
            self._designation.part_of_speech = text or None
        elif self._note in ("administrativeStatus", "normativeAuthorization"):
            self._designation.forbidden = text.startswith(FORBIDDEN)
        elif self._note in ("caseSensitive", "case-sensitive"):
            self._designation.case_sensitive = text.lower() in ("yes", "true", "1")

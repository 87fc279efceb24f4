"""Paragraphs with inline tags to segments: sentences, without the spaces and tags around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from knn_seq.documents.base import Segment
from knn_seq.documents.sentences import sentence_starts
from knn_seq.protect import Content, Role, Tag
from knn_seq.protect.content import paired, tidy

_LETTER = re.compile(r"[^\W\d_]")


class Atom(NamedTuple):
    """A letter of a text, or a tag, with its place in the file's text."""

    letter: str  # empty for a tag
    start: int
    end: int
    tag: Tag | None = None


class Block:
    """A paragraph as it is found: letters and tags."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []

    def add_text(self, text: str, start: int) -> None:
        """Text that stands in the file as it is."""
        self.atoms += [Atom(letter, place, place + 1) for place, letter in enumerate(text, start)]

    def add_escaped(self, text: str, start: int, end: int) -> None:
        """Text that is written otherwise in the file: an entity, an escape."""
        if len(text) == end - start:
            self.add_text(text, start)
        else:
            self.atoms += [Atom(text, start, end)] if text else []

    def add_tag(self, raw: str, role: Role, start: int, name: str = "") -> None:
        """An inline tag."""
        self.atoms.append(Atom("", start, start + len(raw), Tag(raw, role, name, start, start + len(raw))))

    def content(self) -> Content:
        """All of it."""
        return _content(_with_pairs(self.atoms))

    def segments(self, key: str, language: str | None, sentences: bool = True) -> Iterator[Segment]:
        """The sentences of the paragraph that have a letter.

        Args:
            key: What people find the paragraph by.
            language: Of the text, if it is known.
            sentences: Split the paragraph into sentences.
        """
        for piece in _sentences(_trimmed(_with_pairs(self.atoms)), language, sentences):
            content = _content(piece)
            if any(isinstance(part, str) and _LETTER.search(part) for part in content):
                yield Segment(content, key, start=piece[0].start, end=piece[-1].end)


def _with_pairs(atoms: Sequence[Atom]) -> list[Atom]:
    """Opening and closing tags matched; those without a partner become dividers."""
    tags = iter(paired([atom.tag for atom in atoms if atom.tag is not None]))
    return [atom if atom.tag is None else atom._replace(tag=next(tags)) for atom in atoms]  # type: ignore[arg-type]


def _trimmed(atoms: Sequence[Atom]) -> Sequence[Atom]:
    """Without spaces and tags at both ends; of a pair both tags, or none."""
    start, end = 0, len(atoms)
    while start < end:
        first, last = atoms[start], atoms[end - 1]
        if _is_edge(first):
            start += 1
        elif _is_edge(last):
            end -= 1
        elif first.tag and last.tag and first.tag.pair >= 0 and first.tag.pair == last.tag.pair:
            start, end = start + 1, end - 1
        else:
            break
    return atoms[start:end]


def _is_edge(atom: Atom) -> bool:
    if atom.tag is None:
        return atom.letter.isspace()
    return atom.tag.role in (Role.POINT, Role.DIVIDER, Role.BREAK)


def _sentences(atoms: Sequence[Atom], language: str | None, wanted: bool) -> Iterator[Sequence[Atom]]:
    if not atoms:
        return
    cuts = _cuts(atoms, language) if wanted else []
    if not cuts:
        yield atoms
        return
    for start, end in zip([0, *cuts], [*cuts, len(atoms)], strict=True):
        piece = _trimmed(atoms[start:end])
        # Tags around a piece hid the sentences in it; without such tags there are none that were not found.
        yield from _sentences(piece, language, bool(piece) and _had_pair_around(atoms[start:end], piece))


def _had_pair_around(atoms: Sequence[Atom], trimmed: Sequence[Atom]) -> bool:
    pairs = {atom.tag.pair for atom in trimmed if atom.tag}
    return any(atom.tag and atom.tag.pair >= 0 and atom.tag.pair not in pairs for atom in atoms)


def _cuts(atoms: Sequence[Atom], language: str | None) -> list[int]:
    """The atoms at which sentences begin, outside of pairs of tags."""
    text: list[str] = []
    places: list[int] = []  # the atom of each letter of the text
    depths: list[int] = []
    depth = 0
    for place, atom in enumerate(atoms):
        depths.append(depth)
        if atom.tag is None or atom.tag.role is Role.WORD:
            letters = atom.letter or "word"
            text.append(letters)
            places += [place] * len(letters)
        elif atom.tag.pair >= 0:
            depth += 1 if atom.tag.role is Role.OPEN else -1
    cuts = []
    for start in sentence_starts(re.sub(r"\s", " ", "".join(text)), language):
        place = places[start]
        while place > 0 and (tag := atoms[place - 1].tag) is not None and tag.role is Role.OPEN:
            place -= 1
        if depths[place] == 0 and place > 0 and (start == 0 or places[start - 1] != places[start]):
            cuts.append(place)
    return cuts


def _content(atoms: Sequence[Atom]) -> Content:
    """Letters joined to text; a space with a line's end in it is a tag."""
    parts: list[str | Tag] = []
    place = 0
    while place < len(atoms):
        atom = atoms[place]
        if atom.tag is not None:
            parts.append(atom.tag)
        elif atom.letter.isspace():
            end = place
            while end < len(atoms) and atoms[end].tag is None and atoms[end].letter.isspace():
                end += 1
            space = "".join(one.letter for one in atoms[place:end])
            if "\n" in space:
                parts.append(Tag(space, Role.BREAK, "", atom.start, atoms[end - 1].end))
            else:
                parts.append(space)
            place = end
            continue
        else:
            parts.append(atom.letter)
        place += 1
    return tidy(parts)

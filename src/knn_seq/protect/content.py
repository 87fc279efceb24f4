"""Text with tags in it: what a translation has to keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

IN_ORDER = "in order"
DEEPEST = 50  # pairs of tags inside of each other


class Role(Enum):
    """How a tag stands among words."""

    OPEN = "open"  # it begins a stretch of text that its partner ends
    CLOSE = "close"
    POINT = "point"  # it stands between words: a line break, a footnote's mark
    DIVIDER = "divider"  # such a point that must not change places with other dividers
    WORD = "word"  # it is a word of the sentence: %s, an address
    BREAK = "break"  # a space at which the source begins a new line; an output with fewer spaces may lose it


@dataclass(frozen=True)
class Tag:
    """A placeholder or an inline tag: a piece of a file that no translation may change.

    Attributes:
        raw: As it stands in the file.
        role: How it stands among words.
        name: A closing tag ends the last opening one of its name; words named `IN_ORDER` must keep theirs.
        start: Where it begins in the file, if it was found in one ...
        end: ... and where it ends.
        pair: The number of the pair that it belongs to, among the tags of its content.
    """

    raw: str
    role: Role
    name: str = ""
    start: int = -1
    end: int = -1
    pair: int = field(default=-1, compare=False)

    @property
    def in_text(self) -> bool:
        """Whether it is part of the text, so that the model may be shown it as it is; else it is the file's."""
        return self.start < 0

    @property
    def in_order(self) -> bool:
        """Whether it must not change places with others of which this holds."""
        return self.role is Role.DIVIDER or self.name == IN_ORDER


Content: TypeAlias = tuple[str | Tag, ...]


def join(content: Iterable[str | Tag]) -> str:
    """The text with its tags as they stand in the file."""
    return "".join(part if isinstance(part, str) else part.raw for part in content)


def tags_of(content: Iterable[str | Tag], *roles: Role) -> list[Tag]:
    """The tags, those of some roles, or of all but line breaks."""
    wanted = roles or tuple(role for role in Role if role is not Role.BREAK)
    return [part for part in content if isinstance(part, Tag) and part.role in wanted]


def tidy(parts: Iterable[str | Tag]) -> Content:
    """The same content with neighbouring texts joined and empty ones left out."""
    joined: list[str | Tag] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)


def paired(content: Sequence[str | Tag]) -> Content:
    """The content with its opening and closing tags matched and numbered.

    One without a partner, or whose pair would cross another or lie too deep, becomes a divider.
    """
    parts = list(content)
    opened: list[tuple[str, int]] = []  # name and place
    names: Counter[str] = Counter()
    partner: dict[int, int] = {}
    for place, part in enumerate(parts):
        if not isinstance(part, Tag):
            continue
        if part.role is Role.OPEN and len(opened) < DEEPEST:
            opened.append((part.name, place))
            names[part.name] += 1
        elif part.role is Role.CLOSE and names[part.name]:
            while True:  # what was opened since, and is not closed, has no partner
                name, other = opened.pop()
                names[name] -= 1
                if name == part.name:
                    break
            partner[other], partner[place] = place, other
    for place, part in enumerate(parts):
        if isinstance(part, Tag) and part.role in (Role.OPEN, Role.CLOSE):
            if place in partner:
                parts[place] = replace(part, pair=min(place, partner[place]))
            else:
                parts[place] = replace(part, role=Role.DIVIDER, pair=-1)
    return tuple(parts)


def same_tags(source: Content, output: Content) -> bool:
    """Whether an output has each tag of its source exactly as often, well nested and in any order that is allowed."""
    if sorted(map(_identity, tags_of(source))) != sorted(map(_identity, tags_of(output))):
        return False
    first, second = ([tag.raw for tag in tags_of(side) if tag.in_order] for side in (source, output))
    return first == second and well_nested(output)


def well_nested(content: Content) -> bool:
    """Whether every pair is closed in the reverse order of its opening."""
    opened: list[int] = []
    for tag in tags_of(content, Role.OPEN, Role.CLOSE):
        if tag.role is Role.OPEN:
            opened.append(tag.pair)
        elif not opened or opened.pop() != tag.pair:
            return False
    return not opened


def _identity(tag: Tag) -> tuple[str, str, int, int]:
    return tag.raw, tag.role.value, tag.start, tag.pair

"""Line breaks inside of a text: those that only wrap a sentence, and those that end it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from knn_seq.protect.content import Content, Role, Tag, tags_of, tidy

# Markup in a text that begins or ends a paragraph.
BLOCK = re.compile("blockquote|body|br|center|dd|div|dl|dt|h[1-6]|hr|html|li|nl|ol|p|para|pre|qt|table|t[dhr]|ul")
LEAST_WRAPPED = 40  # characters of a line that was wrapped because it was full

_SPACE = re.compile(r"\s")
_BREAK = re.compile(r"[^\S\n]*\r?\n[^\S\n]*")
_ENDS = re.compile(r"[:;.!?][\"')\]»”]?\s*$")
_LISTED = re.compile(r"\s*(?:[-+*•–—#>|=]|\(?\w{1,2}[.)]\s|--?\w)")


def is_wrapped(line: str, next_line: str) -> bool:
    """Whether a sentence continues from a line on the next one."""
    if not line.strip() or not next_line.strip() or _LISTED.match(next_line):
        return False
    starts_lower = next_line.lstrip()[:1].islower()
    return (len(line.strip()) >= LEAST_WRAPPED or starts_lower) and (
        starts_lower or not _ENDS.search(line) or len(line.strip()) >= LEAST_WRAPPED
    )


def mark_breaks(content: Content) -> Content:
    """A content with the line breaks that only wrap it as tags; all others stay what they are."""
    seen = "".join(part if isinstance(part, str) else _SPACE.sub("\x00", part.raw) for part in content)
    breaks = list(_BREAK.finditer(seen))
    if not breaks:
        return content
    ends = [match.start() for match in breaks[1:]] + [len(seen)]
    starts = [0] + [match.end() for match in breaks[:-1]]
    wrapping = [
        match.span()
        for match, start, end in zip(breaks, starts, ends, strict=True)
        if is_wrapped(seen[start : match.start()], seen[match.end() : end])
    ]
    parts: list[str | Tag] = []
    place = 0
    for part in content:
        length = len(part if isinstance(part, str) else part.raw)
        if isinstance(part, str):
            done = 0
            for start, end in wrapping:
                if place <= start and end <= place + length:
                    parts += [part[done : start - place], Tag(part[start - place : end - place], Role.BREAK)]
                    done = end - place
            part = part[done:]
        parts.append(part)
        place += length
    return tidy(parts)


def separate_lines(content: Content) -> Iterator[tuple[Content, Content]]:
    """What stands between the ends of lines and markup that ends a line, each with that behind it."""
    line: list[str | Tag] = []
    for part in content:
        if isinstance(part, Tag):
            if part.in_text and BLOCK.fullmatch(part.name):
                yield tidy(line), (part,)
                line = []
            else:
                line.append(part)
            continue
        for piece in re.split(r"(\s*\n\s*)", part):
            if "\n" in piece:
                yield tidy(line), (piece,)
                line = []
            else:
                line.append(piece)
    yield tidy(line), ()


def separate_sentences(content: Content, starts: Callable[[str], Sequence[int]]) -> Iterator[tuple[Content, Content]]:
    """The sentences of a line outside of pairs of tags, each with the space behind it.

    Args:
        content: A line, its tags paired.
        starts: Where the second and each later sentence of a text begins.
    """
    texts = [part if isinstance(part, str) else " " if part.role is Role.BREAK else "word" for part in content]
    cuts = set(starts("".join(texts)))
    sentence: list[str | Tag] = []
    depth = place = 0
    for part, text in zip(content, texts, strict=True):
        if isinstance(part, Tag):
            depth += {Role.OPEN: 1, Role.CLOSE: -1}.get(part.role, 0)
            sentence.append(part)
        else:
            done = 0
            for cut in sorted(place + 1 + at for at in range(len(part)) if place + 1 + at in cuts and depth == 0):
                sentence.append(part[done : cut - place].rstrip())
                yield tidy(sentence), (part[len(part[: cut - place].rstrip()) : cut - place],)
                sentence, done = [], cut - place
            sentence.append(part[done:])
        place += len(text)
    yield tidy(sentence), ()


def with_breaks(source: Content, output: Content) -> Content:
    """The output with the source's line breaks at the spaces nearest to where they were."""
    breaks = tags_of(source, Role.BREAK)
    if not breaks or tags_of(output, Role.BREAK):
        return output
    wanted = [position for part, position in _positions(source) if isinstance(part, Tag) and part.role is Role.BREAK]
    spaces: list[tuple[int, int, float]] = []  # part, place in it, relative position
    total = _length(output)
    for number, (part, position) in enumerate(_positions(output)):
        if isinstance(part, str):
            spaces += [(number, i, position + i / total) for i, letter in enumerate(part) if letter == " "]
    chosen: dict[int, list[tuple[int, Tag]]] = {}
    for tag, position in zip(breaks, wanted, strict=True):
        if not spaces:
            break
        nearest = min(range(len(spaces)), key=lambda i: abs(spaces[i][2] - position))
        number, at, _ = spaces[nearest]
        chosen.setdefault(number, []).append((at, tag))
        del spaces[: nearest + 1]
    parts: list[str | Tag] = []
    for number, part in enumerate(output):
        end = 0
        for at, tag in chosen.get(number, []):
            parts += [part[end:at], tag]  # type: ignore[index]
            end = at + 1
        parts.append(part[end:] if isinstance(part, str) else part)
    return tidy(parts)


def _positions(content: Content) -> Iterator[tuple[str | Tag, float]]:
    """Each part with its position in the text, from 0 to 1; a line break counts as a space, other tags as nothing."""
    total, place = _length(content), 0
    for part in content:
        yield part, place / total
        place += _size(part)


def _length(content: Content) -> int:
    return max(sum(map(_size, content)), 1)


def _size(part: str | Tag) -> int:
    return len(part) if isinstance(part, str) else int(part.role is Role.BREAK)

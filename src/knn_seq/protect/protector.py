from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from knn_seq.protect.attention import Attention
from knn_seq.protect.content import Content, Role, Tag, paired, same_tags, tags_of, tidy
from knn_seq.protect.lines import mark_breaks, separate_lines, separate_sentences, with_breaks
from knn_seq.protect.patterns import Finder
from knn_seq.protect.placement import Evidence, place_tags, stretches

Translate = Callable[[list[str]], Sequence[str]]
"""Translates some sentences."""

Attend = Callable[[list[Any]], Sequence[Attention | None]]
"""Where the model looked when it wrote some of its translations; None for those of which that is not known."""

STAND_IN = "XX{}"  # a word that models copy
LONGEST_STRETCH = 60  # characters between two tags that are translated alone, to be found in the sentence

_LETTER = re.compile(r"[^\W\d_]")
_ENDS = re.compile(r"[.!?…。！？]\W*$")


@dataclass
class Protected:
    """A translation with all tags of its source.

    Attributes:
        content: The translation.
        used: What the model wrote, as it is part of the translation.
        repaired: It did not have all placeholders at once.
        untranslated: Parts that stayed as they were, since no output had their placeholders.
    """

    content: Content
    used: list[str] = field(default_factory=list)
    repaired: bool = False
    untranslated: int = 0


@dataclass
class Line:
    """A line of a content: what the model is asked to translate at once, and what stands around that."""

    before: Content
    core: Content
    behind: Content
    result: Content | None = None
    used: list[str] = field(default_factory=list)
    repaired: bool = False
    untranslated: bool = False

    @classmethod
    def of(cls, line: Content) -> Line:
        """Spaces at both ends, and pairs of tags around everything, are none of the model's business."""
        before, core, behind = list[str | Tag](), list(paired(line)), list[str | Tag]()
        while core:
            first, last = core[0], core[-1]
            if isinstance(first, str) and first != first.lstrip():
                before.append(first[: len(first) - len(first.lstrip())])
                core[0] = first.lstrip()
            elif isinstance(last, str) and last != last.rstrip():
                behind.insert(0, last[len(last.rstrip()) :])
                core[-1] = last.rstrip()
            elif first == "" or _is_mark(first):
                before.append(core.pop(0))
            elif last == "" or _is_mark(last):
                behind.insert(0, core.pop())
            elif _are_pair(first, last) and len(core) > 1:
                before.append(core.pop(0))
                behind.insert(0, core.pop())
            else:
                break
        return cls(tuple(before), paired(tidy(core)), tuple(behind))


class Protector:
    """Translates text so that it keeps its placeholders and inline tags, whatever the model writes.

    A sentence is translated as it is, if that may be; if a placeholder is lost, without its markup, which is then
    placed where the words around it went; then with stand-ins for what is left; then in pieces around them.

    Args:
        translate: The model, or any other function.
        patterns: Regular expressions of further placeholders.
        sentences: Where the second and each later sentence of a text begins; None: a text is a sentence.
        attention: Where the model looked, asked only where tags have to be placed; None: the texts themselves tell.
    """

    def __init__(
        self,
        translate: Translate,
        patterns: Sequence[str] = (),
        sentences: Callable[[str], Sequence[int]] | None = None,
        attention: Attend | None = None,
    ) -> None:
        self._translate, self._attend, self.finder = translate, attention, Finder(patterns)
        self._sentences = sentences or (lambda text: ())

    def translate(self, contents: Sequence[Content]) -> list[Protected]:
        """Translate texts with tags."""
        lines = [
            [
                (line, end)
                for text, end in separate_lines(self.found(content))
                for line, end in self._sentences_of(Line.of(text), end)
            ]
            for content in contents
        ]
        flat = [line for some in lines for line, _ in some]
        for line in flat:
            if not any(isinstance(part, str) and _LETTER.search(part) for part in line.core):
                line.result = line.core
        self._as_they_are([line for line in flat if not _of_file(line.core)])
        self._without_markup(_open(flat), stand_ins=False)
        self._without_markup(_open(flat), stand_ins=True)
        self._in_pieces(_open(flat))
        results = []
        for some in lines:
            parts = chain.from_iterable(
                (*line.before, *with_breaks(line.core, line.result or ()), *line.behind, *end) for line, end in some
            )
            results.append(
                Protected(
                    tidy(part.raw if isinstance(part, Tag) and part.in_text else part for part in parts),
                    [text for line, _ in some for text in line.used],
                    any(line.repaired for line, _ in some),
                    sum(line.untranslated for line, _ in some),
                )
            )
        return results

    def found(self, content: Content) -> Content:
        """The content with the placeholders of its text as tags, too."""
        parts = (self.finder.split(part) if isinstance(part, str) else (part,) for part in content)
        return mark_breaks(tidy(chain.from_iterable(parts)))

    def kept(self, source: Content, output: str) -> Content | None:
        """A text as a translation of the source, with its tags; None if it does not have them all.

        Args:
            source: A content without tags of a file.
            output: What somebody wrote.
        """
        found, known = paired(self.finder.split(output)), paired(self.found(source))
        first, second = (sorted((tag.raw, tag.role.value) for tag in tags_of(side)) for side in (known, found))
        in_order = ([tag.raw for tag in tags_of(side) if tag.in_order] for side in (known, found))
        return found if first == second and next(in_order) == next(in_order) else None

    def _sentences_of(self, line: Line, end: Content) -> Iterator[tuple[Line, Content]]:
        """The sentences of a line, each with what is behind it."""
        found = list(separate_sentences(line.core, self._sentences))
        if len(found) == 1:
            yield line, end
            return
        for number, (sentence, space) in enumerate(found):
            made = Line.of(sentence)
            if number == 0:
                made.before = (*line.before, *made.before)
            if number == len(found) - 1:
                made.behind, space = (*made.behind, *line.behind), end
            yield made, space

    def _as_they_are(self, lines: list[Line]) -> None:
        lines = _open(lines)
        outputs = self._translate([_shown(line.core) for line in lines])
        for line, output in zip(lines, outputs, strict=True):
            same = output == _shown(line.core)  # then breaks and spaces are also where they were
            content = line.core if same else self.kept(_without_breaks(line.core), _one_line(output))
            if content is not None:
                line.result, line.used = content, [output]
            else:
                line.repaired = True

    def _without_markup(self, lines: list[Line], stand_ins: bool) -> None:
        """Translate without markup, with stand-ins for the file's placeholders, and if asked for, for the text's."""
        if stand_ins:
            lines = [line for line in lines if tags_of(line.core, Role.WORD)]
        else:  # without markup a line was translated just so before
            lines = [line for line in lines if _of_file(line.core) or _has_markup(line.core)]
        plain = [_plain(line.core, stand_ins) for line in lines]
        outputs = list(self._translate(plain)) if plain else []
        waiting = []
        for line, asked, output in zip(lines, plain, outputs, strict=True):
            if output == asked:
                line.result, line.used = line.core, [output]
                continue
            words = self._with_words(line.core, _one_line(output), stand_ins)
            line.repaired = line.repaired or words is None
            if words is not None:
                waiting.append((line, asked, output, words))
        looks = self._looks([(line, output) for line, _, output, _ in waiting])
        inner = self._translated_alone([line for (line, *_), look in zip(waiting, looks, strict=True) if look is None])
        for (line, asked, output, words), look in zip(waiting, looks, strict=True):
            shown = {id(tag): name for name, tag in _stand_ins(tags_of(line.core, Role.WORD), stand_ins)}
            evidence = Evidence({} if look else next(inner), look, asked, str(output), shown)
            placed = place_tags(line.core, words, evidence, self.finder.split)
            if self._is_kept(line.core, placed):
                line.result, line.used = placed, [output]
            else:
                line.repaired = True

    def with_tags(self, source: Content, output: str, attention: Attention | None) -> Content | None:
        """Somebody's translation of `text_of(source)` with the source's tags in it; None: it lacks a placeholder.

        Args:
            source: A line whose tags of the file stand around text, or between words.
            output: The translation.
            attention: Where a model looks when it writes the translation.
        """
        core = paired(source)
        words = self._with_words(core, _one_line(output), stand_ins=False)
        if words is None:
            return None
        evidence = Evidence({}, attention, text_of(core), output)
        placed = place_tags(core, words, evidence, self.finder.split)
        return placed if self._is_kept(core, placed) else None

    def _looks(self, written: list[tuple[Line, str]]) -> list[Attention | None]:
        """Where the model looked when it wrote what tags have to be placed in."""
        if self._attend is None:
            return [None] * len(written)
        asked = [output for line, output in written if _has_markup(line.core)]
        found = iter(self._attend(asked) if asked else [])
        return [next(found) if _has_markup(line.core) else None for line, _ in written]

    def _translated_alone(self, lines: list[Line]) -> Iterator[dict[int, str]]:
        """Of each line the translations of what stands between two tags, by the pair's number."""
        inner = [_inner(line.core) for line in lines]
        texts = [text for each in inner for text in each.values()]
        outputs = iter(self._translate(texts) if texts else [])
        return iter([{pair: next(outputs) for pair in each} for each in inner])

    def _with_words(self, source: Content, output: str, stand_ins: bool) -> Content | None:
        """The output with the source's placeholders for their stand-ins; None if it does not have each once."""
        words = tags_of(source, Role.WORD)
        shown = dict(_stand_ins(words, stand_ins))
        parts: list[str | Tag] = []
        pattern = "|".join(rf"(?<!\w){re.escape(raw)}(?!\w)" for raw in shown) or r"(?!)"
        end = 0
        for match in re.finditer(pattern, output):
            parts += [output[end : match.start()], shown[match[0]]]
            end = match.end()
        parts.append(output[end:])
        left = [tag for tag in words if tag not in shown.values()]
        found: list[str | Tag] = []
        for part in parts:
            for piece in self.finder.split(part) if isinstance(part, str) else (part,):
                if isinstance(piece, Tag) and piece not in shown.values():
                    same = next((tag for tag in left if tag.raw == piece.raw), None)
                    if same is None:
                        return None
                    left.remove(same)
                    piece = same
                found.append(piece)
        kept = [part for part in found if isinstance(part, Tag)]
        return tidy(found) if not left and len(kept) == len(words) else None

    def _in_pieces(self, lines: list[Line]) -> None:
        """Translate what stands between tags, each alone; all that the model makes up is taken out."""
        texts = [
            part.strip()
            for line in lines
            for part in _without_breaks(line.core)
            if isinstance(part, str) and _LETTER.search(part)
        ]
        outputs = iter(self._translate(texts) if texts else [])
        for line in lines:
            parts: list[str | Tag] = []
            used = []
            for part in _without_breaks(line.core):
                if isinstance(part, str) and _LETTER.search(part):
                    used.append(output := next(outputs))
                    before, behind = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
                    part = before + self._as_piece(part.strip(), _one_line(output)) + behind
                parts.append(part)
            result = tidy(parts)
            if self._is_kept(line.core, result):
                line.result, line.used = result, used
            else:
                line.result, line.untranslated = line.core, True
            line.repaired = True

    def _as_piece(self, source: str, output: str) -> str:
        output = " ".join(self.finder.remove(output).split())
        if not _ENDS.search(source):
            output = re.sub(r"[.。]+$", "", output)
        if source[:1].islower() and output[:1].isupper() and not output[1:2].isupper():
            output = output[0].lower() + output[1:]
        return output

    def _is_kept(self, source: Content, output: Content) -> bool:
        """Whether the output also as a text has the source's placeholders: two parts may make one that was none."""
        first, second = (sorted(self.finder.find("".join(map(_mark, side)))) for side in (source, output))
        return first == second and same_tags(source, output)


def _open(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.result is None]


def _of_file(content: Content) -> bool:
    return any(not tag.in_text for tag in tags_of(content))


def _has_markup(content: Content) -> bool:
    return any(tag.role is not Role.WORD for tag in tags_of(content))


def _is_mark(part: str | Tag) -> bool:
    return isinstance(part, Tag) and part.role in (Role.POINT, Role.DIVIDER, Role.BREAK)


def _are_pair(first: str | Tag, last: str | Tag) -> bool:
    return isinstance(first, Tag) and isinstance(last, Tag) and first.pair >= 0 and first.pair == last.pair


def _without_breaks(content: Content) -> Content:
    return tidy(" " if isinstance(part, Tag) and part.role is Role.BREAK else part for part in content)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shown(content: Content) -> str:
    """The text as the model reads it, with all tags."""
    return "".join(part if isinstance(part, str) else part.raw for part in _without_breaks(content))


def _stand_ins(words: Sequence[Tag], every: bool) -> list[tuple[str, Tag]]:
    return [(STAND_IN.format(number), tag) for number, tag in enumerate(words, 1) if every or not tag.in_text]


def _plain(content: Content, every: bool) -> str:
    """The text as the model reads it, without markup; words that are placeholders have stand-ins."""
    names = {id(tag): name for name, tag in _stand_ins(tags_of(content, Role.WORD), every)}
    parts = []
    for part in _without_breaks(content):
        if isinstance(part, str):
            parts.append(part)
        elif part.role is Role.WORD:
            parts.append(names.get(id(part), part.raw))
    return _one_line("".join(parts))


def text_of(content: Content) -> str:
    """The text as a model reads it without markup, in one line."""
    return _plain(content, every=False)


def _inner(content: Content) -> dict[int, str]:
    return {
        pair: text
        for pair, text in stretches(content).items()
        if text and len(text) <= LONGEST_STRETCH and _LETTER.search(text)
    }


def _mark(part: str | Tag) -> str:
    """A part as the check reads it: a tag of the file is a wall between texts."""
    if isinstance(part, str):
        return part
    if part.role is Role.BREAK:
        return " "
    return part.raw if part.in_text else "\x00"

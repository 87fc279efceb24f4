"""Inline tags into a translation that was made without them: where the words around them went."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.protect.alignment import align, find_words
from knn_seq.protect.attention import Attention, best_stretch, word_spans
from knn_seq.protect.content import Content, Role, Tag, tags_of, tidy

MOSTLY = 0.5  # of the attention on the words of a pair of tags: what is written then belongs between them
LEAST_LOOK = 0.2  # of the attention that tells anything

_LETTER = re.compile(r"\w")
_NAME = re.compile(r"\d|[^\W\d_]{3}")
_TOKEN = re.compile(r"\s+|\w+(?:['’-]\w+)*|[^\w\s]")


@dataclass
class _Node:
    """A pair of tags with what is between them, or a single tag."""

    tags: tuple[Tag, ...]
    start: int  # the first source word behind the opening tag
    end: int = -1  # the first source word behind the closing one
    spaced: bool = False  # there is a space before it
    children: list[_Node] = field(default_factory=list)
    span: tuple[int, int] = (0, 0)  # which tokens of the target it goes around


def stretches(content: Content) -> dict[int, str]:
    """The text inside of each pair of tags, by the pair's number."""
    texts: dict[int, str] = {}
    for place, part in enumerate(content):
        if isinstance(part, Tag) and part.role is Role.OPEN:
            inner: list[str] = []
            for other in content[place + 1 :]:
                if isinstance(other, Tag) and other.role is Role.CLOSE and other.pair == part.pair:
                    break
                inner.append(other if isinstance(other, str) else _as_text(other))
            texts[part.pair] = "".join(inner).strip()
    return texts


class Evidence(NamedTuple):
    """What tells where the words of a source went."""

    inner: Mapping[int, str]  # translations of the text inside of pairs, by the pair's number
    attention: Attention | None = None
    asked: str = ""  # what the model read, which the attention is about ...
    written: str = ""  # ... and wrote
    shown: Mapping[int, str] = {}  # how placeholders stand there that have stand-ins, by the identity of their tags


def place_tags(source: Content, output: Content, evidence: Evidence, split: Callable[[str], Content]) -> Content:
    """The output with the source's inline tags in it, each once and well nested.

    Args:
        source: Text with inline tags and words that are placeholders.
        output: Its translation, with the words that are placeholders and no other tags.
        evidence: What tells where words went.
        split: Finds the placeholders of a text.
    """
    words, roots = _tree(source)
    target = _Target(output)
    positions = align([_word(word) for word in words], target.words)
    looks = _looks(words, target, evidence)
    if looks is not None:
        for word in np.flatnonzero(looks.max(axis=0) >= LEAST_LOOK):
            positions[word] = float(looks[:, word].argmax())
    placing = _Placing(words, positions, target, looks, evidence.inner, split)
    for node in roots:
        placing.place(node, 0, len(target.words))
    parts: list[str | Tag] = []
    _write(
        roots, 0, len(target.tokens), target.tokens, any(tag.in_order for tag in tags_of(source, Role.DIVIDER)), parts
    )
    return tidy(parts)


def _looks(words: Sequence[str | Tag], target: _Target, evidence: Evidence) -> NDArray[np.float32] | None:
    """How much of the attention lies on each source word when each target word is written, (target, source)."""
    if evidence.attention is None or not words or not target.words:
        return None

    def spans(some: Iterable[str | Tag], text: str) -> list[tuple[int, int]] | None:
        return word_spans([evidence.shown.get(id(word), _word(word)) for word in some], text)

    read, written = spans(words, evidence.asked), spans(target.parts, evidence.written)
    if read is None or written is None:
        return None
    looks = evidence.attention.of_words(read, written)
    for word, place in _same(words, target.parts):  # these are certain
        looks[place], looks[:, word] = 0.0, 0.0
        looks[place, word] = 1.0
    return looks


def _same(source: Sequence[str | Tag], target: Sequence[str | Tag]) -> Iterator[tuple[int, int]]:
    """The places of words that both sides have, each once: placeholders, numbers, names."""
    counts = [Counter(map(_word, side)) for side in (source, target)]
    places = {_word(word): place for place, word in enumerate(target)}
    for number, word in enumerate(source):
        text = _word(word)
        if counts[0][text] == counts[1][text] == 1 and (isinstance(word, Tag) or _NAME.search(text)):
            yield number, places[text]


class _Target:
    """An output as tokens, spaces among them, and as words without the spaces."""

    def __init__(self, output: Content) -> None:
        self.tokens = list(_tokens(output))
        self._places = [place for place, token in enumerate(self.tokens) if not _is_space(token)]
        self.parts = [self.tokens[place] for place in self._places]
        self.words = list(map(_word, self.parts))

    def before(self, word: int) -> int:
        """The token at which a word begins; behind the last one, the end."""
        return self._places[word] if word < len(self._places) else len(self.tokens)

    def behind(self, word: int) -> int:
        """The token behind a word."""
        return self._places[word] + 1 if self._places and word >= 0 else 0


def _tree(source: Content) -> tuple[list[str | Tag], list[_Node]]:
    words: list[str | Tag] = []
    roots: list[_Node] = []
    opened: list[_Node] = []
    space = False
    for part in source:
        if isinstance(part, str):
            found = _TOKEN.findall(part)
            words += [token for token in found if not token.isspace()]
            space = bool(found) and found[-1].isspace()
        elif part.role is Role.WORD:
            words.append(part)
            space = False
        elif part.role is Role.BREAK:
            space = True
        elif part.role is Role.CLOSE:
            node = opened.pop()
            node.tags, node.end = (*node.tags, part), len(words)
        else:
            node = _Node((part,), len(words), len(words), space)
            (opened[-1].children if opened else roots).append(node)
            if part.role is Role.OPEN:
                opened.append(node)
    return words, roots


class _Placing(NamedTuple):
    """Finds where nodes go."""

    words: Sequence[str | Tag]  # of the source
    positions: Sequence[float]  # of each of them among the words of the target
    target: _Target
    looks: NDArray[np.float32] | None  # (target words, source words)
    inner: Mapping[int, str]  # translations of the text inside of pairs
    split: Callable[[str], Content]

    def place(self, node: _Node, first: int, last: int) -> None:
        """Find where a node and those in it go, among the words of the target from the first to before the last."""
        target, positions = self.target, self.positions
        if node.end > node.start and target.words:
            first, last = self._stretch(node, first, last)
            node.span = (target.before(first), target.behind(last - 1))
        elif node.start == 0 or not target.words:
            node.span = (0, 0)
        elif node.start >= len(self.words):
            node.span = (len(target.tokens), len(target.tokens))
        elif node.spaced:
            node.span = (target.before(round(positions[node.start])),) * 2
        else:
            node.span = (target.behind(round(positions[node.start - 1])),) * 2
        for child in node.children:
            self.place(child, first, last)

    def _trimmed(self, node: _Node, first: int, last: int) -> tuple[int, int]:
        """A stretch, its last word included, without what those of the source do not have at their ends."""
        target, source = self.target.parts, self.words[node.start : node.end]
        if not _is_mark(source[-1]):
            while last > first and _is_mark(target[last]):
                last -= 1
        if not _is_mark(source[0]):
            while first < last and _is_mark(target[first]):
                first += 1
        if _is_name(source[0]):  # an article before a name that the source has none for
            first = next((place for place in range(first, last + 1) if _is_name(target[place])), first)
        return first, last + 1

    def _stretch(self, node: _Node, first: int, last: int) -> tuple[int, int]:
        """The words that those of a pair became, from the first to before the last."""
        if self.looks is not None and last > first:
            inside = self.looks[first:last, node.start : node.end].sum(axis=1)
            if inside.max() >= LEAST_LOOK:
                begin, end = best_stretch((inside - MOSTLY).tolist())
                return self._trimmed(node, first + begin, first + end)
        some = self.positions[node.start : node.end]
        translated = _tokens(self.split(self.inner.get(node.tags[0].pair, "")))
        for candidate in (translated, self.words[node.start : node.end]):
            wanted = [_word(token) for token in candidate if not _is_space(token)]
            found = find_words(wanted, self.target.words, round(min(some)))
            if found is not None:
                return found[0], found[1] + 1
        return round(min(some)), round(max(some)) + 1


def _write(
    nodes: Sequence[_Node], start: int, end: int, tokens: Sequence[str | Tag], in_order: bool, parts: list[str | Tag]
) -> None:
    """Append the tokens from `start` to `end` with these nodes among them; they are nested by construction."""
    for node in nodes if in_order else sorted(nodes, key=lambda node: node.span):
        first = min(max(node.span[0], start), end)
        last = min(max(node.span[1], first), end)
        parts += tokens[start:first]
        parts.append(node.tags[0])
        _write(node.children, first, last, tokens, in_order, parts)
        parts += node.tags[1:]
        start = last
    parts += tokens[start:end]


def _tokens(content: Content) -> Iterator[str | Tag]:
    for part in content:
        yield from _TOKEN.findall(part) if isinstance(part, str) else [part]


def _is_space(token: str | Tag) -> bool:
    return isinstance(token, str) and token.isspace()


def _is_mark(token: str | Tag) -> bool:
    return isinstance(token, str) and not _LETTER.search(token)


def _is_name(token: str | Tag) -> bool:
    return isinstance(token, Tag) or not token[0].islower()


def _word(word: str | Tag) -> str:
    return word if isinstance(word, str) else word.raw


def _as_text(tag: Tag) -> str:
    if tag.role is Role.BREAK:
        return " "
    return tag.raw if tag.role is Role.WORD and tag.in_text else ""

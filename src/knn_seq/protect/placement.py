"""Inline tags into a translation that was made without them: where the words around them went."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from knn_seq.protect.alignment import align, find_words
from knn_seq.protect.content import Content, Role, Tag, tags_of, tidy

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


def place_tags(source: Content, output: Content, inner: Mapping[int, str], split: Callable[[str], Content]) -> Content:
    """The output with the source's inline tags in it, each once and well nested.

    Args:
        source: Text with inline tags and words that are placeholders.
        output: Its translation, with the words that are placeholders and no other tags.
        inner: Translations of the text inside of pairs, by the pair's number.
        split: Finds the placeholders of a text.
    """
    words, roots = _tree(source)
    target = _Target(output)
    positions = align([_word(word) for word in words], target.words)
    for node in roots:
        _place(node, words, positions, target, inner, split)
    parts: list[str | Tag] = []
    _write(
        roots, 0, len(target.tokens), target.tokens, any(tag.in_order for tag in tags_of(source, Role.DIVIDER)), parts
    )
    return tidy(parts)


class _Target:
    """An output as tokens, spaces among them, and as words without the spaces."""

    def __init__(self, output: Content) -> None:
        self.tokens = list(_tokens(output))
        self._places = [place for place, token in enumerate(self.tokens) if not _is_space(token)]
        self.words = [_word(self.tokens[place]) for place in self._places]

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


def _place(
    node: _Node,
    words: Sequence[str | Tag],
    positions: Sequence[float],
    target: _Target,
    inner: Mapping[int, str],
    split: Callable[[str], Content],
) -> None:
    """Find where a node and those in it go."""
    if node.end > node.start and target.words:
        first = round(min(positions[node.start : node.end]))
        last = round(max(positions[node.start : node.end]))
        translated = _tokens(split(inner.get(node.tags[0].pair, "")))
        for candidate in (translated, words[node.start : node.end]):
            wanted = [_word(token) for token in candidate if not _is_space(token)]
            found = find_words(wanted, target.words, first)
            if found is not None:
                first, last = found
                break
        node.span = (target.before(first), target.behind(last))
    elif node.start == 0 or not target.words:
        node.span = (0, 0)
    elif node.start >= len(words):
        node.span = (len(target.tokens), len(target.tokens))
    elif node.spaced:
        node.span = (target.before(round(positions[node.start])),) * 2
    else:
        node.span = (target.behind(round(positions[node.start - 1])),) * 2
    for child in node.children:
        _place(child, words, positions, target, inner, split)


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


def _word(word: str | Tag) -> str:
    return word if isinstance(word, str) else word.raw


def _as_text(tag: Tag) -> str:
    if tag.role is Role.BREAK:
        return " "
    return tag.raw if tag.role is Role.WORD and tag.in_text else ""

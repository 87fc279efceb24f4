"""Segments whose source the store has: what people translated, with the segment's tags in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from knn_seq.decoding import Translation
from knn_seq.protect import Attention, Content, Line, Protector, Role, text_of
from knn_seq.protect.content import tags_of
from knn_seq.protect.placement import stretches
from knn_seq.translator import Translator


class Stored(NamedTuple):
    """A stored translation of a segment."""

    content: Content
    certain: bool  # it is people's work as it is: no tag had to be placed by where a model looks


class StoredTranslations:
    """Finds the translations of segments that a store has; tags do not count, as in CAT tools.

    Args:
        translator: Whose store it is, and whose model tells which words of a stored pair belong together.
        protector: Knows placeholders.
    """

    def __init__(self, translator: Translator, protector: Protector) -> None:
        self._translator, self._protector = translator, protector

    def find(self, contents: Sequence[Content]) -> dict[Content, Stored]:
        """Those of some segments, by their content."""
        found: dict[Content, Stored] = {}
        tagged: list[tuple[Content, Line, str]] = []
        for content in contents:
            target = self._verbatim(content)
            if target is not None:
                found[content] = Stored(target, True)
            elif _of_file(content):
                line = Line.of(self._protector.found(content))
                stored = None if _needs_words(line.core) else self._target(text_of(line.core))
                if stored is not None:
                    tagged.append((content, line, stored))
        written = [(line, stored) for _, line, stored in tagged if _of_file(line.core)]
        looks = iter(self._attention(written))
        for content, line, stored in tagged:
            placed: Content | None
            if _of_file(line.core):
                look = next(looks)
                placed = self._protector.with_tags(line.core, stored, look) if look else None
            else:
                placed = self._protector.kept(line.core, stored)
            if placed is not None:
                found[content] = Stored((*line.before, *placed, *line.behind), self._is_certain(line.core, placed))
        return found

    def _verbatim(self, content: Content) -> Content | None:
        """The stored translation of a text without tags of its file, if it has the same placeholders."""
        if _of_file(content):
            return None
        text = "".join(part if isinstance(part, str) else part.raw for part in content)
        target = self._target(text)
        if target is None:
            target = self._target(" ".join(text.split()))
            if target is None:
                return None
            before, behind = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
            target = f"{before}{target.strip()}{behind}"
        return self._protector.kept(content, target)

    def _target(self, source: str) -> str | None:
        return self._translator.exact_matches.target(source)

    def _attention(self, written: Sequence[tuple[Line, str]]) -> list[Attention | None]:
        """Where the model looks when it writes stored translations."""
        if not written:
            return []
        tokens = self._translator.model.tokenizer.encode_targets([target for _, target in written])
        return self._translator.attention(
            [Translation(target, text_of(line.core), its) for (line, target), its in zip(written, tokens, strict=True)]
        )

    def _is_certain(self, source: Content, target: Content) -> bool:
        """Whether each pair of tags goes around what it must: the same text, or what the store has for it."""
        if len(tags_of(source, Role.OPEN, Role.CLOSE, Role.WORD)) < len(tags_of(source)):
            return False  # a point between words
        inside = stretches(target)
        return all(
            inside[pair].casefold() in (text.casefold(), (self._target(text) or text).casefold())
            for pair, text in stretches(source).items()
        )


def _of_file(content: Content) -> bool:
    return any(not tag.in_text for tag in tags_of(content))


def _needs_words(content: Content) -> bool:
    """Whether a line has words that are the file's own, which a store does not have, or markup in its text."""
    return any(tag.in_text != (tag.role is Role.WORD) for tag in tags_of(content))

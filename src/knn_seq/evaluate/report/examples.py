"""The sentences that neighbours helped and hurt most, with what decided each of their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from knn_seq.evaluate.comparison import Comparison, System
from knn_seq.explain import Explanation, TokenExplanation, explain
from knn_seq.explain.text import why_weight
from knn_seq.explain.words import around_word, words_of
from knn_seq.translator import Translator

NEIGHBOURS = 3


class NeighbourSentence(NamedTuple):
    """The sentence pair of a neighbour; its target is cut in three around the word of the neighbour's token."""

    probability: float
    distance: float
    token: str
    source: str
    target: tuple[str, str, str]


@dataclass(frozen=True)
class MarkedWord:
    """A word of a translation and why it is there."""

    text: str
    tokens: list[TokenExplanation]
    changed: bool  # the neighbours decided it
    why: str  # λ of the token that decided, and what it depends on
    neighbours: list[NeighbourSentence]  # of the token that decided


@dataclass(frozen=True)
class Example:
    """A sentence that two systems translate differently."""

    number: int  # in the test set, from 1
    source: str
    reference: str
    base: str
    base_chrf: float
    chrf: float
    words: list[MarkedWord]

    @property
    def gain(self) -> float:
        """Of sentence chrF."""
        return self.chrf - self.base_chrf


def most_helped(gains: Sequence[float], count: int) -> list[int]:
    """The places of the greatest gains above zero, greatest first."""
    return [i for i in sorted(range(len(gains)), key=lambda i: -gains[i]) if gains[i] > 0][:count]


def most_hurt(gains: Sequence[float], count: int) -> list[int]:
    """The places of the greatest losses, greatest first."""
    return most_helped([-gain for gain in gains], count)


def examples(
    comparison: Comparison,
    system: System,
    chosen: Sequence[int],
    base_chrf: Sequence[float],
    chrf: Sequence[float],
) -> list[Example]:
    """Sentences of a system beside those of the first.

    Args:
        comparison: The comparison.
        system: The system whose words are explained.
        chosen: Which sentences.
        base_chrf: chrF of each sentence of the first system.
        chrf: chrF of each sentence of this one.
    """
    base, translator = comparison.systems[0], system.translator
    explanations = explain(
        translator, [system.translations[i] for i in chosen], neighbours=NEIGHBOURS, **system.settings
    )
    neighbours = _reader(translator)
    return [
        Example(
            i + 1,
            comparison.sources[i],
            comparison.references[i],
            base.translations[i],
            base_chrf[i],
            chrf[i],
            _marked(explanation, translator, neighbours),
        )
        for i, explanation in zip(chosen, explanations, strict=True)
    ]


def _marked(
    explanation: Explanation, translator: Translator, neighbours: Callable[[TokenExplanation], list[NeighbourSentence]]
) -> list[MarkedWord]:
    translation = explanation.translation
    marked = []
    for text, places in words_of(translation.text, translation.tokens, translator.model.tokenizer):
        tokens = [explanation.tokens[place] for place in places]
        deciding = next((token for token in tokens if token.changed), tokens[0] if tokens else None)
        changed = any(token.changed for token in tokens)
        why = why_weight(deciding) if deciding else ""
        marked.append(MarkedWord(text, tokens, changed, why, neighbours(deciding) if deciding else []))
    return marked


def _reader(translator: Translator) -> Callable[[TokenExplanation], list[NeighbourSentence]]:
    """Reads the sentences of a token's neighbours, each one once."""
    tokenizer = translator.model.tokenizer

    @cache
    def read(sentence: int) -> tuple[str, str, list[int]]:
        source, target = translator.store.texts[sentence]
        [tokens] = tokenizer.encode_targets([target])
        # Words are found in a text that its tokens write letter by letter; others are shown as they are.
        return source, target, tokens if tokenizer.decode(tokens) == target else []

    def neighbours(token: TokenExplanation) -> list[NeighbourSentence]:
        found = []
        for neighbour in token.neighbours:
            source, target, tokens = read(neighbour.sentence)
            known = neighbour.position < len(tokens)
            cut = around_word(target, tokens, neighbour.position, tokenizer) if known else (target, "", "")
            found.append(NeighbourSentence(neighbour.probability, neighbour.distance, neighbour.token, source, cut))
        return found

    return neighbours

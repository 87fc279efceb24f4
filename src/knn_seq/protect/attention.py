"""Where a model looked when it wrote a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]


class Attention(NamedTuple):
    """How much a model looked at each token of a source when it wrote each token of an output."""

    source: Sequence[Span | None]  # where each token's text begins and ends in the source; None: it has none
    output: Sequence[Span | None]  # the same in the output
    weights: NDArray[np.float32]  # (output tokens, source tokens)

    def of_words(self, source: Sequence[Span], output: Sequence[Span]) -> NDArray[np.float32]:
        """How much of the attention lies on some words when others are written, (output words, source words).

        Args:
            source: Where words of the source begin and end.
            output: The same for the output.
        """
        read, written = _overlaps(self.source, source), _overlaps(self.output, output)
        tokens = np.maximum(read.sum(axis=1, keepdims=True), 1)  # letters of each that are in words
        words = np.maximum(written.sum(axis=0, keepdims=True), 1)  # letters of each that tokens wrote
        looks: NDArray[np.float32] = (written / words).T @ self.weights @ (read / tokens)
        return looks


def word_spans(words: Sequence[str], text: str) -> list[Span] | None:
    """Where words begin and end that stand in a text in this order; None: they do not."""
    spans = []
    end = 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            return None
        end = start + len(word)
        spans.append((start, end))
    return spans


def best_stretch(gains: Sequence[float]) -> Span:
    """The first and the last place of the consecutive places whose gains add up to the most; at least one place."""
    best, first, total = (-np.inf, 0, 0), 0, 0.0
    for place, gain in enumerate(gains):
        if total <= 0:
            first, total = place, 0.0
        total += gain
        best = max(best, (total, first, place), key=lambda found: found[0])
    return best[1], best[2]


def _overlaps(tokens: Sequence[Span | None], words: Sequence[Span]) -> NDArray[np.float32]:
    """How many letters each token and each word have in common, (tokens, words)."""
    bounds = np.array([token or (0, 0) for token in tokens], np.float32).reshape(-1, 2)
    others = np.array(words, np.float32).reshape(-1, 2)
    first = np.maximum(bounds[:, None, 0], others[None, :, 0])
    last = np.minimum(bounds[:, None, 1], others[None, :, 1])
    overlaps: NDArray[np.float32] = np.maximum(last - first, 0)
    return overlaps

"""Which rows of a step look at the source words of their terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from knn_seq.decoding.due_terms import DueTerms


class TermAttention:
    """Sums up attention over the source tokens of terms, those of all rows of a step at once.

    Args:
        due: The terms of each sentence; None: it has none.
    """

    def __init__(self, due: Sequence[DueTerms | None]) -> None:
        self._spans = [list(terms.pushed_spans()) if terms is not None else [] for terms in due]
        self._sentences: Sequence[int] = []
        self._terms: list[tuple[int, int]] = []  # row and occurrence
        self._bounds = np.empty(0, dtype=np.int64)  # where each begins and ends, if rows lie behind each other
        self._length = 0  # of a row

    def looks(self, sentences: Sequence[int], attention: Tensor, least: float) -> list[tuple[int, int]]:
        """The terms that have at least so much of their row's attention: row and occurrence.

        Args:
            sentences: The number of each row's sentence.
            attention: (rows, source tokens)
            least: Their share.
        """
        if sentences is not self._sentences or attention.shape[1] != self._length:
            self._set_rows(sentences, attention.shape[1])
        if not self._terms:
            return []
        # Every other sum is of what lies between one term and the next: terms do not overlap.
        looks = np.add.reduceat(attention.cpu().numpy().ravel(), self._bounds).tolist()[::2]
        return [term for term, look in zip(self._terms, looks, strict=True) if look >= least]

    def _set_rows(self, sentences: Sequence[int], length: int) -> None:
        self._sentences, self._length, self._terms = sentences, length, []
        bounds: list[int] = []
        for row, sentence in enumerate(sentences):
            for occurrence, (begin, end) in self._spans[sentence]:
                self._terms.append((row, occurrence))
                bounds += (row * length + begin, row * length + end)
        if bounds and bounds[-1] == len(sentences) * length:
            bounds.pop()  # a last sum goes to the end by itself
        self._bounds = np.array(bounds, dtype=np.int64)

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
        self._terms: list[tuple[int, int, int, int]] = []  # row, occurrence, and from and to which token of all terms
        self._rows = self._columns = np.empty(0, dtype=np.int64)  # of all tokens of all terms
        self._owners: list[int] = []  # of each of these tokens: the place of its term
        self._longest = 0  # tokens of a term

    def looks(self, sentences: Sequence[int], attention: Tensor, least: float) -> list[tuple[int, int]]:
        """The terms that have at least so much of their row's attention: row and occurrence.

        Args:
            sentences: The number of each row's sentence.
            attention: (rows, source tokens)
            least: Their share.
        """
        if sentences is not self._sentences:
            self._set_rows(sentences)
        if not self._terms:
            return []
        # Behind a network nothing is in the caches of a CPU, no code either: the fewer calls the better.
        looks = attention.cpu().numpy()[self._rows, self._columns].tolist()
        # One of a term's tokens has more than this, or all have less together; 0.99, since sums are rounded.
        some = 0.99 * least / self._longest
        seen = dict.fromkeys(owner for owner, look in zip(self._owners, looks, strict=True) if look > some)
        return [
            (row, occurrence)
            for row, occurrence, begin, end in map(self._terms.__getitem__, seen)
            if sum(looks[begin:end]) >= least
        ]

    def _set_rows(self, sentences: Sequence[int]) -> None:
        self._sentences, self._terms, self._owners, self._longest = sentences, [], [], 0
        rows: list[int] = []
        columns: list[int] = []
        for row, sentence in enumerate(sentences):
            for occurrence, (begin, end) in self._spans[sentence]:
                first, length = len(rows), end - begin
                rows += [row] * length
                columns += range(begin, end)
                self._owners += [len(self._terms)] * length
                self._terms.append((row, occurrence, first, first + length))
                self._longest = max(self._longest, length)
        self._rows, self._columns = np.array(rows), np.array(columns)

"""One step of decoding with binding terms: those that are due are pushed, followed, and asked for before the end."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from knn_seq.decoding.due_terms import DueTerms, TermTokens
from knn_seq.decoding.term_attention import TermAttention
from knn_seq.decoding.term_row import TermRow, TermState
from knn_seq.models import Step, StreamHook
from knn_seq.models.search import Distribution, SearchStep

LOOKS = 0.5  # of the attention on a term's words: its translation is due now
LIKELY = 0.05  # p of a term's first piece over the largest p, for models that do not tell where they look
END_PROBABILITY = 0.02  # of the end, from which on it is asked what is due


class TermStep(Protocol):
    """What terms look at in a step, and change in it."""

    @property
    def numbers(self) -> Sequence[int]:
        """The sentence of each row."""

    @property
    def distribution(self) -> Distribution:
        """Of each row."""

    @property
    def attention(self) -> Tensor | None:
        """See `Step`."""

    def prefix(self, row: int) -> Sequence[int]:
        """The tokens of one row so far."""


class TermBatch(StreamHook):
    """Pushes the terms of a batch in its steps: a hook to be called behind that of the neighbours.

    The distribution of a row whose next token belongs to a term is mixed with one over the term's pieces, as
    that of neighbours is; all other rows stay as they are, and are not looked at.

    Args:
        due: The terms of each sentence of the batch; None: it has none.
        tokens: Terms as tokens.
        ends: The tokens that end an output.
        strict: No output ends without its terms.
    """

    wants_attention = True

    def __init__(
        self, due: Sequence[DueTerms | None], tokens: TermTokens, ends: Collection[int], strict: bool = False
    ) -> None:
        self.due, self.strict = due, strict
        self._state = TermState(tokens, frozenset(ends), strict)
        self._attention = TermAttention(due)
        self._constrained = {sentence for sentence, its in enumerate(due) if its and (its.locked or its.banned)}
        self._numbers: Sequence[int] = []  # the sentence of each row of the last step
        self._bound: list[int] = []  # its rows of sentences with terms
        self._beams = False  # a sentence has several rows

    def enter(self, sentences: Sequence[int]) -> None:
        """See `StreamHook`; everything is ready."""

    def leave(self, sentences: Sequence[int]) -> None:
        """See `StreamHook`."""

    def edit(self, step: SearchStep) -> None:
        """Push the terms that are due."""
        self._push(step)

    def __call__(self, step: Step) -> Tensor:
        """The step's log-probabilities, (rows, vocabulary), with those of due terms pushed."""
        complete = CompleteStep(step)
        self._push(complete)
        return complete.distribution.log_probs

    def _push(self, step: TermStep) -> None:
        if step.numbers is not self._numbers and step.numbers != self._numbers:
            self._set_rows(step.numbers)
        if not self._bound:
            return
        at = RowsOfStep(self._state, step, self.due, self._beams)
        if self._state.following or self._constrained:
            following, self._state.following = self._state.following, {}
            watched = self._constrained.union(sentence for sentence, _ in following)
            for row in self._bound:
                if self._numbers[row] in watched:
                    at(row).follow(following)
        if step.attention is None:
            self._push_likely(step, at)
        else:
            for row, occurrence in self._attention.looks(self._numbers, step.attention, LOOKS):
                at(row).look(occurrence)
        # Beams compete with others that have their terms; one row alone would go on without an end.
        if self.strict or self._beams:
            for row in self._ending(step.distribution):
                at(row).hold_back_end()

    def _set_rows(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._beams = len(set(numbers)) < len(numbers)
        self._bound = [row for row, sentence in enumerate(numbers) if self.due[sentence] is not None]
        # Of a row, beam search looks at twice as many tokens as there are beams.
        self._state.choices = 2 * numbers.count(numbers[0]) if self._beams else 1

    def _push_likely(self, step: TermStep, at: RowsOfStep) -> None:
        """Where a model does not tell where it looks: push a term whose first piece is likely."""
        best = step.distribution.largest(1)[:, 0].tolist()
        for row in self._bound:
            due = self.due[self._numbers[row]]
            assert due is not None
            for number in filter(due.is_pushed, range(len(due.occurrences))):
                if at(row).likelihood(number) >= best[row] + math.log(LIKELY):
                    at(row).look(number)

    def _ending(self, distribution: Distribution) -> Iterator[int]:
        """The rows with terms whose output may end here."""
        least = -math.inf if self.strict else math.log(END_PROBABILITY)
        ends = torch.tensor(sorted(self._state.ends), device=distribution.stored.device)
        likely = distribution.of(ends.expand(len(self._numbers), -1)).amax(dim=1).tolist()
        return (row for row in self._bound if likely[row] > least)


class RowsOfStep:
    """The rows of a step that terms have to do with, made when they are asked for.

    Args:
        state: Of the batch.
        step: The step.
        due: The terms of each sentence.
        beams: A sentence has several rows.
    """

    def __init__(self, state: TermState, step: TermStep, due: Sequence[DueTerms | None], beams: bool) -> None:
        self._state, self._step, self._due, self._beams = state, step, due, beams
        self._rows: dict[int, TermRow] = {}
        self._best: list[list[int]] | None = None  # of each row one

    def __call__(self, row: int) -> TermRow:
        """One of them."""
        if row not in self._rows:
            if self._best is None and not self._beams:  # greedy search will ask for these: they are found once
                self._best = self._step.distribution.best(1).tokens.tolist()
            sentence = self._step.numbers[row]
            due, prefix = self._due[sentence], tuple(self._step.prefix(row))
            assert due is not None
            best = None if self._best is None else self._best[row][0]
            self._rows[row] = TermRow(self._state, self._step.distribution, row, prefix, sentence, due, best)
        return self._rows[row]


class CompleteStep:
    """A `Step` as terms see it, where the log-probabilities of all tokens are known.

    Args:
        step: The step, whose log-probabilities are written over.
    """

    def __init__(self, step: Step) -> None:
        self._step, self.attention = step, step.attention
        self.numbers: list[int] = step.sentences.tolist()
        self.distribution = Distribution.of_log_probs(step.log_probs, step.left_out)

    def prefix(self, row: int) -> list[int]:
        """The tokens of one row so far."""
        return [token for token in self._step.prefixes[row].tolist() if token >= 0]

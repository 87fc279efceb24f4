"""One step of decoding with binding terms: those that are due are pushed, followed, and asked for before the end."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from knn_seq.decoding.due_terms import DueTerms, TermTokens
from knn_seq.decoding.piece_trie import PieceTrie
from knn_seq.glossary.words import continues_word
from knn_seq.models import Step

LOOKS = 0.5  # of the attention on a term's words: its translation is due now
GLANCES = 0.1  # the same, if nowhere else is more
LIKELY = 0.05  # p of a term's first piece over the largest p, for models that do not tell where they look
PUSHED, FORCED = 0.999, 1 - 1e-9  # the share of a due term's pieces in the distribution
UNFINISHED = 5.0  # what the end loses in log p for each term that is due
END_PROBABILITY = 0.02  # of the end, from which on it is asked what is due


class Place(NamedTuple):
    """Where a model has looked at a term's words."""

    prefix: tuple[int, ...]
    attention: float


class TermBatch:
    """Pushes the terms of a batch in its steps: a `StepHook`, to be called behind that of the neighbours.

    The distribution of a row whose next token belongs to a term is mixed with one over the term's pieces, as
    that of neighbours is; all other rows stay as they are.

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
        self.due, self.tokens, self.strict = due, tokens, strict
        self.looked: dict[tuple[int, int], list[Place]] = defaultdict(list)  # by sentence and occurrence
        self._ends = sorted(ends)
        self._following: dict[tuple[int, tuple[int, ...]], tuple[PieceTrie, float]] = {}
        self._rows: tuple[Tensor, list[int], Tensor | None] | None = None  # of the last step: rows with terms, spans

    def __call__(self, step: Step) -> Tensor:
        """The step's log-probabilities, (rows, vocabulary), with those of due terms pushed."""
        sentences = step.sentences.tolist()
        rows, spans = self._rows_and_spans(step)
        if not rows:
            return step.log_probs
        following, self._following = self._following, {}
        watched = {sentence for sentence, _ in following} | {
            sentence for sentence, due in enumerate(self.due) if due and (due.locked or due.banned)
        }
        row_steps: dict[int, RowStep] = {}

        def at(row: int) -> RowStep:
            if row not in row_steps:
                row_steps[row] = RowStep(self, step, row, sentences[row])
            return row_steps[row]

        for row in rows:
            if sentences[row] in watched:
                at(row).follow(following)
        for row, occurrence, attention in self._looks(step, rows, spans):
            at(row).look(occurrence, attention)
        ending = step.log_probs[rows][:, self._ends].amax(dim=1) > math.log(END_PROBABILITY)
        for place in ending.nonzero().flatten().tolist():
            at(rows[place]).hold_back_end()
        return step.log_probs

    def push(self, step: Step, row: int, sentence: int, prefix: tuple[int, ...], trie: PieceTrie, share: float) -> None:
        """Mix a row's distribution with one over the tokens that continue a term, as likely as the model has them."""
        tokens = list(trie.next)
        log_probs = step.log_probs[row]
        own = log_probs[tokens]
        total = own.logsumexp(dim=0)
        if not torch.isfinite(total):
            own, total = torch.zeros_like(own), torch.tensor(math.log(len(tokens)), device=own.device)
        log_probs += math.log1p(-share)
        log_probs[tokens] = torch.logaddexp(log_probs[tokens], own - total + math.log(share))
        for token, rest in trie.next.items():
            if rest.next and not rest.complete:
                self._following[sentence, (*prefix, token)] = rest, share

    def _rows_and_spans(self, step: Step) -> tuple[list[int], Tensor | None]:
        """The rows of sentences with terms, and the source tokens of each of their terms, (rows, terms, tokens)."""
        if self._rows is not None and self._rows[0] is step.sentences:
            _, rows, spans = self._rows
        else:
            rows = [row for row, sentence in enumerate(step.sentences.tolist()) if self.due[sentence] is not None]
            spans = None
            if rows and step.attention is not None:
                spans = self._spans([int(step.sentences[row]) for row in rows], step.attention)
            self._rows = step.sentences, rows, spans
        if step.finished is None:
            return rows, spans
        running = [place for place, row in enumerate(rows) if not step.finished[row]]
        return [rows[place] for place in running], None if spans is None else spans[running]

    def _spans(self, sentences: Sequence[int], attention: Tensor) -> Tensor:
        every = [due.spans if (due := self.due[sentence]) else [] for sentence in sentences]
        marks = torch.zeros(len(every), max(map(len, every)), attention.shape[1])
        for row, spans in enumerate(every):
            for number, span in enumerate(spans):
                if span is not None:
                    marks[row, number, span[0] : span[1]] = 1
        return marks.to(attention.device)

    def _looks(self, step: Step, rows: list[int], spans: Tensor | None) -> list[tuple[int, int, float]]:
        """Rows that look at a term's words, or are likely to write it: row, occurrence, and how much."""
        if spans is None or step.attention is None:
            return self._likely(step, rows)
        attention = step.attention if len(rows) == len(step.attention) else step.attention[rows]
        looks = (spans @ attention.unsqueeze(2)).squeeze(2)  # (rows, terms)
        found = (looks >= GLANCES).nonzero().tolist()
        return [(rows[place], number, float(looks[place, number])) for place, number in found]

    def _likely(self, step: Step, rows: list[int]) -> list[tuple[int, int, float]]:
        """The same for a model that does not tell where it looks: a term's first piece is likely."""
        found = []
        best = step.log_probs.amax(dim=1)
        sentences = step.sentences.tolist()
        begins = step.prefixes.shape[1] == 0
        for row in rows:
            due = self.due[sentences[row]]
            assert due is not None
            for number, one in enumerate(due.occurrences):
                if one.target:
                    first = list(self.tokens.trie(one, begins, begins and due.capitals).next)
                    if step.log_probs[row, first].max() >= best[row] + math.log(LIKELY):
                        found.append((row, number, 1.0))
        return found


class RowStep:
    """One row of a step; what costs something is computed when it is first needed."""

    def __init__(self, batch: TermBatch, step: Step, row: int, sentence: int) -> None:
        self.batch, self.step, self.row, self.sentence = batch, step, row, sentence
        due = batch.due[sentence]
        assert due is not None
        self.due = due
        self.prefix: tuple[int, ...] = tuple(step.prefixes[row].tolist())
        self.pushed = False
        self._text: str | None = None
        self._missing: list[int] | None = None

    @property
    def text(self) -> str:
        """What is written so far."""
        if self._text is None:
            self._text = self.batch.tokens.tokenizer.decode(self.prefix)
        return self._text

    @property
    def missing(self) -> list[int]:
        """The occurrences that are not written yet."""
        if self._missing is None:
            self._missing = self.due.check.missing(self.text)
        return self._missing

    def follow(self, following: dict[tuple[int, tuple[int, ...]], tuple[PieceTrie, float]]) -> None:
        """Continue a term that was begun, or what was written before; keep out what is banned."""
        locked = self.due.locked
        if (self.sentence, self.prefix) in following:
            self._push(*following[self.sentence, self.prefix])
        elif locked is not None and self.prefix == locked.tokens:
            self._push(self._trie(locked.occurrence), FORCED)
        elif locked is not None and self.prefix == locked.tokens[: len(self.prefix)]:
            self._push(PieceTrie([[locked.tokens[len(self.prefix)]]]), FORCED)
        for banned in self.due.banned:
            *before, last = banned
            if list(self.prefix[len(self.prefix) - len(before) :]) == before:
                self.step.log_probs[self.row, last] = -torch.inf

    def look(self, occurrence: int, attention: float) -> None:
        """Push a term whose words the model looks at, if it is due and a word can begin here."""
        if occurrence not in self.missing:
            return
        self.batch.looked[self.sentence, occurrence].append(Place(self.prefix, attention))
        if attention >= LOOKS and not self.pushed and not self._within_word():
            self._push(self._trie(occurrence), PUSHED)

    def hold_back_end(self) -> None:
        """Make the end less likely while terms are due."""
        if self.pushed or not self.missing:
            return
        log_probs, ends = self.step.log_probs[self.row], self.batch._ends
        if not self.batch.strict:
            log_probs[ends] -= UNFINISHED * len(self.missing)
            return
        best = int(log_probs.argmax())
        log_probs[ends] = -torch.inf
        if best in ends:
            self._push(self._trie(self.missing[0]), FORCED)

    def _push(self, trie: PieceTrie, share: float) -> None:
        if trie.next:
            self.pushed = True
            self.batch.push(self.step, self.row, self.sentence, self.prefix, trie, share)

    def _trie(self, occurrence: int) -> PieceTrie:
        capital = self.due.starts_sentence(self.text)
        return self.batch.tokens.trie(self.due.occurrences[occurrence], not self.prefix, capital)

    def _within_word(self) -> bool:
        """Whether the model's choice continues the last word."""
        best = int(self.step.log_probs[self.row].argmax())
        return continues_word(self.text, self.batch.tokens.tokenizer.decode([*self.prefix, best]))

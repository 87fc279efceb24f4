"""One step of decoding with binding terms: those that are due are pushed, followed, and asked for before the end."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from knn_seq.decoding.due_terms import DueTerms, TermTokens
from knn_seq.decoding.piece_trie import PieceTrie
from knn_seq.glossary.function_words import is_function_word
from knn_seq.glossary.words import junction
from knn_seq.models import Step

LOOKS = 0.5  # of the attention on a term's words: its translation is due now
GLANCES = 0.1  # the same, if nowhere else is more
NEARLY = 0.03  # p of a term's first piece over the largest p, from which on the model will write it by itself
LIKELY = 0.05  # p of a term's first piece over the largest p, for models that do not tell where they look
PUSHED, FORCED = 0.999, 1 - 1e-9  # the share of a due term's pieces in the distribution
UNFINISHED = 5.0  # what the end loses in log p for each term that is due
END_PROBABILITY = 0.02  # of the end, from which on it is asked what is due
ENDING = 2  # letters that a term that was pushed may get behind it, such as a plural's
TRIES = 8  # to end a word


class Place(NamedTuple):
    """Where a model has looked at a term's words."""

    prefix: tuple[int, ...]
    attention: float


class Begun(NamedTuple):
    """A term of which some pieces are written."""

    trie: PieceTrie  # what may follow
    occurrence: int
    share: float  # of its pieces in the distribution
    pushed: bool = False  # the model would not have written all of what is written


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
        self.written: dict[tuple[int, int], tuple[int, ...]] = {}  # by the same, a prefix that has the term
        self._ends = sorted(ends)
        self._constrained = {sentence for sentence, its in enumerate(due) if its and (its.locked or its.banned)}
        self._sentences: list[int] = []  # of each row of the last step
        self._beams = False  # a sentence has several rows
        self._following: dict[tuple[int, tuple[int, ...]], Begun] = {}  # by sentence and prefix
        self._rows: tuple[Tensor, list[int], Tensor | None] | None = None  # of the last step: rows with terms, spans

    def __call__(self, step: Step) -> Tensor:
        """The step's log-probabilities, (rows, vocabulary), with those of due terms pushed."""
        rows, spans = self._rows_and_spans(step)
        if not rows:
            return step.log_probs
        sentences = self._sentences
        following, self._following = self._following, {}
        watched = self._constrained.union(sentence for sentence, _ in following)
        row_steps: dict[int, RowStep] = {}

        def at(row: int) -> RowStep:
            if row not in row_steps:
                row_steps[row] = RowStep(self, step, row, sentences[row])
            return row_steps[row]

        if watched:
            for row in rows:
                if sentences[row] in watched:
                    at(row).follow(following)
        for row, occurrence, attention in self._looks(step, rows, spans):
            at(row).look(occurrence, attention)
        # Beams compete with others that have their terms; one row alone would go on without an end.
        if self.strict or self._beams:
            least = -math.inf if self.strict else math.log(END_PROBABILITY)
            ending = step.log_probs[:, self._ends].amax(dim=1) > least
            for row in ending.nonzero().flatten().tolist():
                if self.due[sentences[row]] is not None:
                    at(row).hold_back_end()
        return step.log_probs

    def push(self, at: RowStep, term: Begun) -> None:
        """Let a row continue a term."""
        tokens = list(term.trie.next)
        complete(at.step, at.row, tokens)
        mix(at.step.log_probs[at.row], tokens, term.share)
        self.begin(at, term._replace(pushed=True), tokens)

    def begin(self, at: RowStep, term: Begun, tokens: Iterable[int]) -> None:
        """Let the next step continue a term whose next token is one of these, or end it if it was pushed."""
        for token in tokens:
            rest = term.trie.next[token]
            if not rest.complete or term.pushed:
                self._following[at.sentence, (*at.prefix, token)] = term._replace(trie=rest)

    def _rows_and_spans(self, step: Step) -> tuple[list[int], Tensor | None]:
        """The rows of sentences with terms, and the source tokens of each of their terms, (rows, terms, tokens)."""
        if self._rows is not None and torch.equal(self._rows[0], step.sentences):
            _, rows, spans = self._rows
        else:
            self._sentences = step.sentences.tolist()
            self._beams = len(set(self._sentences)) < len(self._sentences)
            rows = [row for row, sentence in enumerate(self._sentences) if self.due[sentence] is not None]
            spans = None
            if rows and step.attention is not None:
                spans = self._spans([self._sentences[row] for row in rows], step.attention)
            self._rows = step.sentences, rows, spans
        if step.finished is None:
            return rows, spans
        finished = step.finished.tolist()
        running = [place for place, row in enumerate(rows) if not finished[row]]
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
        return [
            (row, number, attention)
            for row, its in zip(rows, looks.tolist(), strict=True)
            for number, attention in enumerate(its)
            if attention >= GLANCES
        ]

    def _likely(self, step: Step, rows: list[int]) -> list[tuple[int, int, float]]:
        """The same for a model that does not tell where it looks: a term's first piece is likely."""
        found = []
        best = step.log_probs.amax(dim=1)
        begins = step.prefixes.shape[1] == 0
        for row in rows:
            due = self.due[self._sentences[row]]
            assert due is not None
            for number, one in enumerate(due.occurrences):
                if one.target:
                    first = list(self.tokens.trie(one, "" if begins else " ", begins and due.capitals).next)
                    complete(step, row, first)
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
        self.prefix: tuple[int, ...] = tuple(token for token in step.prefixes[row].tolist() if token >= 0)
        self.pushed = False
        self._text: str | None = None
        self._missing: list[int] | None = None
        self._best: int | None = None
        self._longer: str | None = None

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

    @property
    def best(self) -> int:
        """The token that the model would write."""
        if self._best is None:
            self._best = int(self.step.log_probs[self.row].argmax())
        return self._best

    @property
    def longer(self) -> str:
        """What would be written then."""
        if self._longer is None:
            self._longer = self.batch.tokens.tokenizer.decode([*self.prefix, self.best])
        return self._longer

    @property
    def added(self) -> str:
        """What the token would add."""
        return self.longer[len(self.text) :].strip()

    @property
    def junction(self) -> str | None:
        """What stands before that; None: it belongs to the last word."""
        return junction(self.text, self.longer)

    def follow(self, following: Mapping[tuple[int, tuple[int, ...]], Begun]) -> None:
        """Continue a term that was begun, or what was written before; keep out what is banned."""
        locked, begun = self.due.locked, following.get((self.sentence, self.prefix))
        if locked is not None and self.prefix == locked.tokens[: len(self.prefix)]:
            if len(self.prefix) < len(locked.tokens):
                self.pushed = True
                mix(self.step.log_probs[self.row], [locked.tokens[len(self.prefix)]], FORCED)
            else:
                self._push(Begun(self._trie(locked.occurrence), locked.occurrence, FORCED))
        elif begun is not None and begun.trie.complete:
            self._end_word(begun)
        elif begun is not None and (begun.share == FORCED or not self._comes_by_itself(begun)):
            self._push(begun)
        for banned in self.due.banned:
            *before, last = banned
            if list(self.prefix[len(self.prefix) - len(before) :]) == before:
                self.step.log_probs[self.row, last] = -torch.inf

    def look(self, occurrence: int, attention: float) -> None:
        """Push a term whose words the model looks at, if it is due and a word can begin here."""
        self.batch.looked[self.sentence, occurrence].append(Place(self.prefix, attention))
        if self.due.pushed is not None and occurrence not in self.due.pushed:
            return
        if attention < LOOKS or self.pushed or self._was_written(occurrence) or self._begins_by_itself(occurrence):
            return
        if self._is_written(occurrence) or self.junction is None:
            return
        begun = Begun(self._trie(occurrence), occurrence, PUSHED)
        if not self._comes_by_itself(begun) and not self._waits(begun):
            self._push(begun)

    def hold_back_end(self) -> None:
        """Make the end less likely while terms are due."""
        if self.pushed or not self.missing:
            return
        log_probs, ends = self.step.log_probs[self.row], self.batch._ends
        if not self.batch.strict:
            log_probs[ends] -= UNFINISHED * len(self.missing)
            return
        best = self.best
        log_probs[ends] = -torch.inf
        if best in ends:
            self._push(Begun(self._trie(self.missing[0]), self.missing[0], FORCED))

    def _was_written(self, occurrence: int) -> bool:
        """Whether a term was found before in what is written; it stays there."""
        before = self.batch.written.get((self.sentence, occurrence))
        return before is not None and self.prefix[: len(before)] == before

    def _begins_by_itself(self, occurrence: int) -> bool:
        """Whether the model's choice is the first piece of a term; nothing else has to be known then."""
        trie = self.batch.tokens.trie(self.due.occurrences[occurrence], " " if self.prefix else "", False)
        if self.best not in trie.next:
            return False
        self.pushed = True
        self.batch.begin(self, Begun(trie, occurrence, PUSHED), [self.best])
        if trie.next[self.best].complete:
            self.batch.written[self.sentence, occurrence] = (*self.prefix, self.best)
        return True

    def _is_written(self, occurrence: int) -> bool:
        """Whether a term is in what is written."""
        if occurrence in self.missing:
            return False
        self.batch.written[self.sentence, occurrence] = self.prefix
        return True

    def _push(self, term: Begun) -> None:
        if term.trie.next:
            self.pushed = True
            self.batch.push(self, term)

    def _comes_by_itself(self, begun: Begun) -> bool:
        """Whether the model is about to write the term, or a form of it, without being pushed."""
        best = self.best
        if best in begun.trie.next:
            self.pushed = True
            self.batch.begin(self, begun, [best])
            return True
        missing = self.due.check.missing
        return begun.occurrence not in self.missing or begun.occurrence not in missing(self.longer)

    def _waits(self, begun: Begun) -> bool:
        """Whether the model writes something else first, and will look at the term again, or ends."""
        if self.best in self.batch._ends:
            return True
        added, forms = self.added.casefold(), self.due.occurrences[begun.occurrence].target_forms
        if added and is_function_word(added, self.due.check.language):
            return True
        if len(added) > 1 and any(form.casefold().startswith(added) for form in forms):
            return True  # a form of the term, in other pieces
        if any(self.best in self._trie(other).next for other in self.missing if other != begun.occurrence):
            return True  # another term comes first
        # A term that is nearly as likely as another word is one of two orders of the words, not a wrong translation.
        log_probs = self.step.log_probs[self.row]
        return bool(log_probs[list(begun.trie.next)].max() > log_probs[self.best] + math.log(NEARLY))

    def _trie(self, occurrence: int) -> PieceTrie:
        before = " " if self.junction is None else self.junction
        capital = before in ("", " ") and self.due.starts_sentence(self.text)
        return self.batch.tokens.trie(self.due.occurrences[occurrence], before, capital)

    def _end_word(self, begun: Begun) -> None:
        """Let the term that was pushed be a word, and not the beginning of another that is no form of it."""
        if begun.occurrence in self.missing:
            return
        for _ in range(TRIES):
            if self.junction is not None:
                return
            if len(self.added) <= ENDING and begun.occurrence not in self.due.check.missing(self.longer):
                self.batch._following[self.sentence, (*self.prefix, self.best)] = begun  # it ends behind its ending
                return
            self.step.log_probs[self.row, self.best] = -torch.inf
            self._best = self._longer = None


def complete(step: Step, row: int, tokens: Sequence[int]) -> None:
    """Let a row have these tokens, also where a shortlist has left them out."""
    if step.left_out is not None:
        missing = [token for token in tokens if step.log_probs[row, token] == -torch.inf]
        places = torch.tensor(missing, dtype=torch.int64, device=step.log_probs.device)
        step.log_probs[row, places] = step.left_out(torch.full_like(places, row), places)


def mix(log_probs: Tensor, tokens: Sequence[int], share: float) -> None:
    """Mix a distribution, (vocabulary,), in its place with one over some tokens, as likely as they are in it.

    Args:
        log_probs: The distribution's log-probabilities.
        tokens: The tokens.
        share: Of the second distribution in the mixture, less than 1.
    """
    own = log_probs[tokens]
    total = own.logsumexp(dim=0)
    if not torch.isfinite(total):  # all were impossible
        own, total = torch.zeros_like(own), own.new_tensor(math.log(len(tokens)))
    log_probs += math.log1p(-share)
    log_probs[tokens] = torch.logaddexp(log_probs[tokens], own - total + math.log(share))

"""One row of a step with binding terms: what it writes next, and which term it is made to write instead."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from knn_seq.decoding.due_terms import DueTerms, TermTokens
from knn_seq.decoding.piece_trie import PieceTrie
from knn_seq.glossary.function_words import is_function_word
from knn_seq.glossary.words import junction
from knn_seq.models.search import Distribution

NEARLY = 0.03  # p of a term's first piece over the largest p, from which on the model will write it by itself
PUSHED, FORCED = 0.999, 1 - 1e-9  # the share of a due term's pieces in the distribution
UNFINISHED = 5.0  # what the end loses in log p for each term that is due
ENDING = 2  # letters that a term that was pushed may get behind it, such as a plural's
TRIES = 16  # to find what may follow a term

Prefix = tuple[int, ...]


class Begun(NamedTuple):
    """A term of which some pieces are written."""

    trie: PieceTrie  # what may follow
    occurrence: int
    share: float  # of its pieces in the distribution
    start: int  # tokens before it
    pushed: bool = False  # the model would not have written all of what is written
    inflected: bool = False  # it has got an ending


@dataclass
class TermState:
    """What the rows of a batch know of their terms from one step to the next.

    Args:
        tokens: Terms as tokens.
        ends: The tokens that end an output.
        strict: No output ends without its terms.
        choices: The best tokens of a row that search looks at.
    """

    tokens: TermTokens
    ends: Collection[int]
    strict: bool
    choices: int = 1
    following: dict[tuple[int, Prefix], Begun] = field(default_factory=dict)  # by sentence and prefix
    written: dict[tuple[int, int], Prefix] = field(default_factory=dict)  # by sentence and occurrence: what has it


class TermRow:
    """One row of a step; what costs something is computed when it is first needed.

    Args:
        state: Of the batch.
        distribution: Of the step, which is changed.
        row: Of the distribution.
        prefix: The tokens that are written.
        sentence: Its number.
        due: Its terms.
        best: The token that the model would write; None: it is looked for when it is needed.
    """

    __slots__ = (
        *("state", "distribution", "row", "prefix", "sentence", "due"),
        *("pushed", "_best", "_longer", "_missing", "_text"),
    )

    def __init__(
        self,
        state: TermState,
        distribution: Distribution,
        row: int,
        prefix: Prefix,
        sentence: int,
        due: DueTerms,
        best: int | None = None,
    ) -> None:
        self.state, self.distribution, self.row = state, distribution, row
        self.prefix, self.sentence, self.due = prefix, sentence, due
        self.pushed, self._best = False, best
        self._text: str | None = None
        self._missing: list[int] | None = None
        self._longer: str | None = None

    @property
    def text(self) -> str:
        """What is written so far."""
        if self._text is None:
            self._text = self._decoded(self.prefix)
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
            self._best = self.distribution.best_token(self.row)
        return self._best

    @property
    def longer(self) -> str:
        """What would be written then."""
        if self._longer is None:
            self._longer = self._with(self.best)
        return self._longer

    @property
    def junction(self) -> str | None:
        """What stands before the token; None: it belongs to the last word."""
        return junction(self.text, self.longer)

    def follow(self, following: Mapping[tuple[int, Prefix], Begun]) -> None:
        """Continue a term that was begun, or what was written before; keep out what is banned."""
        locked, begun = self.due.locked, following.get((self.sentence, self.prefix))
        if locked is not None and self.prefix == locked.tokens[: len(self.prefix)]:
            if len(self.prefix) < len(locked.tokens):
                self.pushed = True
                mix(self.distribution, self.row, [locked.tokens[len(self.prefix)]], FORCED)
            else:
                self._push(self._new(locked.occurrence, FORCED))
        elif begun is not None and begun.trie.complete:
            self._end_word(begun)
        elif begun is not None and (begun.share == FORCED or not self._comes_by_itself(begun)):
            self._push(begun)
        for banned in self.due.banned:
            *before, last = banned
            if list(self.prefix[len(self.prefix) - len(before) :]) == before:
                self._write([last], [-math.inf])

    def look(self, occurrence: int) -> None:
        """Push a term whose words the model looks at, if it is due and a word can begin here.

        What costs least is asked first.
        """
        if self.pushed or self._was_written(occurrence) or self.best in self.state.ends:
            return
        if self._begins_by_itself(occurrence) or self._best_needs_no_push(occurrence) or self.junction is None:
            return
        begun = self._new(occurrence, PUSHED)
        if not self._waits(begun) and not self._is_written(occurrence) and not self._comes_by_itself(begun):
            self._push(begun)

    def likelihood(self, occurrence: int) -> float:
        """log p of the likeliest first piece of a term."""
        trie = self.state.tokens.trie(
            self.due.occurrences[occurrence], " " if self.prefix else "", not self.prefix and self.due.capitals
        )
        return max(self.distribution.of_row(self.row, list(trie.next)))

    def hold_back_end(self) -> None:
        """Make the end less likely while terms are due."""
        if self.pushed or not self.missing:
            return
        ends = list(self.state.ends)
        if not self.state.strict:
            lower = UNFINISHED * len(self.missing)
            self._write(ends, [log_prob - lower for log_prob in self.distribution.of_row(self.row, ends)])
            return
        best = self.best
        self._write(ends, [-math.inf] * len(ends))
        if best in ends:
            self._push(self._new(self.missing[0], FORCED))

    def _was_written(self, occurrence: int) -> bool:
        """Whether a term was found before in what is written; it stays there."""
        before = self.state.written.get((self.sentence, occurrence))
        return before is not None and self.prefix[: len(before)] == before

    def _begins_by_itself(self, occurrence: int) -> bool:
        """Whether the model's choice is the first piece of a term; nothing else has to be known then."""
        best = self.best
        trie = self.state.tokens.any_case(self.due.occurrences[occurrence], not self.prefix)
        if best not in trie.next:
            return False
        if trie.next[best].complete:
            self.pushed, self.state.written[self.sentence, occurrence] = True, (*self.prefix, best)
        else:
            self._begin(Begun(trie, occurrence, PUSHED, len(self.prefix)), [best])
        return True

    def _best_needs_no_push(self, occurrence: int) -> bool:
        """Whether the model's choice is a form of the term, or an article or its like, behind which it looks again."""
        tokens = self.state.tokens
        return tokens.is_function_token(self.best, self.due.check.language) or tokens.is_form(
            self.best, self.due, occurrence
        )

    def _is_written(self, occurrence: int) -> bool:
        """Whether a term is in what is written."""
        if occurrence in self.missing:
            return False
        self.state.written[self.sentence, occurrence] = self.prefix
        return True

    def _comes_by_itself(self, begun: Begun) -> bool:
        """Whether the model is about to write the term, or a form of it, without being pushed."""
        if self.best in begun.trie.next:
            self._begin(begun, [self.best])
            return True
        if begun.start < len(self.prefix):  # what was written before it does not count
            return self.due.check.has(self._decoded([*self.prefix[begun.start :], self.best]), begun.occurrence)
        return begun.occurrence not in self.missing or begun.occurrence not in self.due.check.missing(self.longer)

    def _waits(self, begun: Begun) -> bool:
        """Whether the model writes something else first, and will look at the term again."""
        added = self.longer[len(self.text) :].strip().casefold()
        if added and is_function_word(added, self.due.check.language):
            return True
        forms = self.due.occurrences[begun.occurrence].target_forms
        if len(added) > 1 and any(form.casefold().startswith(added) for form in forms):
            return True  # a form of the term, in other pieces
        # A term that is nearly as likely as another word is one of two orders of the words, not a wrong translation.
        first = self.distribution.of_row(self.row, [self.best, *begun.trie.next])
        if max(first[1:]) > first[0] + math.log(NEARLY):
            return True
        others = (other for other in range(len(self.due.occurrences)) if other != begun.occurrence)
        return any(self.best in self._trie(other).next and other in self.missing for other in others)

    def _push(self, term: Begun) -> None:
        """Let the row continue a term."""
        if tokens := list(term.trie.next):
            mix(self.distribution, self.row, tokens, term.share)
            self._best = self._longer = None
            self._begin(term._replace(pushed=True), tokens)

    def _begin(self, term: Begun, tokens: Sequence[int]) -> None:
        """Let the next step continue a term whose next token is one of these, or end it if it was pushed."""
        self.pushed = True
        for token in tokens:
            rest = term.trie.next[token]
            if not rest.complete or term.pushed:
                self.state.following[self.sentence, (*self.prefix, token)] = Begun(rest, *term[1:])

    def _new(self, occurrence: int, share: float) -> Begun:
        return Begun(self._trie(occurrence), occurrence, share, len(self.prefix))

    def _trie(self, occurrence: int) -> PieceTrie:
        before = " " if self.junction is None else self.junction
        capital = before in ("", " ") and self.due.starts_sentence(self.text)
        return self.state.tokens.trie(self.due.occurrences[occurrence], before, capital)

    def _end_word(self, begun: Begun) -> None:
        """Let the term that was pushed be a word, and not the beginning of another that is no form of it.

        Beams may take other tokens than the best one, so that all of the best are asked.
        """
        for _ in range(TRIES):
            tokens = [self.best] if self.state.choices == 1 else self._best_tokens()
            glued = [token for token in tokens if junction(self.text, self._with(token)) is None]
            if not glued or begun.occurrence in self.missing:
                return
            endings = [token for token in glued if self._is_ending(token, begun)]
            for token in endings:
                self.state.following[self.sentence, (*self.prefix, token)] = begun._replace(inflected=True)
            others = [token for token in glued if token not in endings and token not in begun.trie.next]
            if not others:
                return
            self._write(others, [-math.inf] * len(others))

    def _best_tokens(self) -> Sequence[int]:
        return self.distribution.best_tokens(self.row, self.state.choices)

    def _is_ending(self, token: int, begun: Begun) -> bool:
        """Whether the term is still there with a token behind it, as an inflected form."""
        longer = self._with(token)
        if begun.inflected or len(longer) - len(self.text) > ENDING:
            return False
        return self.due.check.has(self._decoded([*self.prefix[begun.start :], token]), begun.occurrence)

    def _with(self, token: int) -> str:
        """What is written, and a token."""
        return self._decoded([*self.prefix, token])

    def _decoded(self, tokens: Sequence[int]) -> str:
        return self.state.tokens.tokenizer.decode(tokens)

    def _write(self, tokens: Sequence[int], log_probs: Sequence[float]) -> None:
        self.distribution.write_row(self.row, tokens, log_probs)
        self._best = self._longer = None


def mix(distribution: Distribution, row: int, tokens: Sequence[int], share: float) -> None:
    """Mix the distribution of a row with one over some tokens, as likely as they are in it.

    Args:
        distribution: Of all rows.
        row: The row.
        tokens: The tokens.
        share: Of the second distribution in the mixture, less than 1.
    """
    own = distribution.of_row(row, tokens)
    total = math.fsum(map(math.exp, own))
    parts = [math.exp(log_prob) / total if total else 1 / len(own) for log_prob in own]
    mixed = [share * part + (1 - share) * math.exp(log_prob) for part, log_prob in zip(parts, own, strict=True)]
    distribution.shift_row(row, math.log1p(-share))
    distribution.write_row(row, tokens, [math.log(p) if p else -math.inf for p in mixed])

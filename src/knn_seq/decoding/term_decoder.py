"""Sentences decoded with binding terms: as they are, then with those pushed that are missing, then constrained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from knn_seq.decoding.due_terms import DueTerms, LockedPrefix, TermTokens
from knn_seq.decoding.term_places import TermPlaces
from knn_seq.decoding.terms import TermBatch
from knn_seq.glossary import Occurrence, TermCheck, TermFinder
from knn_seq.models import Hypothesis, Model, Source, StepHook

Decode = Callable[[Sequence[int], StepHook | None], Iterator[tuple[int, list[Hypothesis]]]]
"""Decodes the sentences with these numbers, with a hook behind that of the neighbours.

Gives the place of each among these numbers and its n best outputs, as they are found.
"""

PASSES = 4  # in which a sentence is decoded again with a constraint at the most


@dataclass
class BoundOutput:
    """The outputs of a sentence, and what tells which of its terms they have."""

    outputs: list[Hypothesis]
    check: TermCheck | None


class TermDecoder:
    """Decodes so that terms are in the output.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.tokens = model, TermTokens(model.tokenizer)
        self._ends: set[int] | None = None

    @property
    def ends(self) -> set[int]:
        """The tokens that end an output."""
        if self._ends is None:
            self._ends = {self.model.tokenizer.encode_targets([""])[0][-1], *getattr(self.model, "end_tokens", ())}
        return self._ends

    def generate(
        self, sources: Sequence[Source], finder: TermFinder, decode: Decode
    ) -> Iterator[tuple[int, BoundOutput]]:
        """The outputs of each sentence, by its number, as they are found.

        What a sentence becomes without its terms is kept if it has them.  If not, those that it lacks are pushed when
        the model looks at them.  If that is not enough, one after the other is put where it belongs.

        Args:
            sources: The sentences.
            finder: Finds their terms.
            decode: Does the decoding.
        """
        found: dict[int, BoundOutput] = {}  # what lacks a term
        for number, outputs in decode(range(len(sources)), None):
            occurrences = finder.find(sources[number].text)
            output = BoundOutput(outputs, finder.check(occurrences) if occurrences else None)
            if self._faults(output):
                found[number] = output
            else:
                yield number, output
        due_of = zip(found, self.tokens.due([sources[number] for number in found], finder), strict=True)
        lacking = {number: due for number, due in due_of if due is not None}
        for attempt in range(1 + PASSES):
            if not lacking:
                return
            numbers = list(lacking)
            if attempt:
                due = self._constrained(
                    [sources[number] for number in numbers],
                    [lacking[number] for number in numbers],
                    [found[number].outputs[0].tokens for number in numbers],
                )
            else:
                due = [replace(lacking[number], pushed=frozenset(self._missing(found[number]))) for number in numbers]
            batch = TermBatch(due, self.tokens, self.ends, strict=attempt == PASSES)
            for place, outputs in decode(numbers, batch):
                number, output = numbers[place], BoundOutput(outputs, due[place].check)
                faults = self._faults(output)
                if faults <= self._faults(found[number]):
                    found[number] = output
                lacking[number] = due[place]
                if not faults:
                    del lacking[number]
                    yield number, output
        yield from ((number, found[number]) for number in lacking)

    def _text(self, output: BoundOutput) -> str:
        return self.model.tokenizer.decode(output.outputs[0].tokens)

    def _missing(self, output: BoundOutput) -> list[int]:
        return [] if output.check is None else output.check.missing(self._text(output))

    def _faults(self, output: BoundOutput) -> int:
        """How many terms the best output lacks, and how often it has what is forbidden."""
        if output.check is None:
            return 0
        return len(self._missing(output)) + len(output.check.forbidden(self._text(output)))

    def _constrained(
        self, sources: Sequence[Source], due: Sequence[DueTerms], outputs: Sequence[Sequence[int]]
    ) -> list[DueTerms]:
        """What is due when sentences are decoded again, and from where on they are free."""
        written = [[token for token in output if token not in self.ends] for output in outputs]
        places = TermPlaces.of(self.model, self.tokens, sources, written, next(iter(self.ends)))
        return [
            self._locked(its, terms, cut=len(its.written) == len(output))
            for its, terms, output in zip(places, due, outputs, strict=True)
        ]

    def _locked(self, places: TermPlaces, terms: DueTerms, cut: bool) -> DueTerms:
        """What is due then in one sentence, whose output may have been cut at the largest length."""
        text = places.texts[-1]
        banned = [places.tokens_of(match.start, match.end) for match in terms.check.forbidden(text)]
        missing = terms.check.missing(text)
        locked, last = terms.locked, len(places.written)
        if cut:  # the terms need space before
            last = max(0, last - 1 - sum(self._longest(terms.occurrences[number]) for number in missing))
        if missing:
            first = min(self._first(places, terms), last)
            place, number = min((places.best(terms, number, range(first, last + 1)), number) for number in missing)
            locked = LockedPrefix(tuple(places.written[:place]), number)
        return replace(terms, locked=locked, banned=[*terms.banned, *filter(None, banned)])

    def _first(self, places: TermPlaces, terms: DueTerms) -> int:
        """The tokens of an output that have the term which it was made to have before."""
        if terms.locked is None:
            return 0
        begin, lacks = len(terms.locked.tokens) + 1, terms.check.missing
        written = range(begin, len(places.texts))
        return next((n for n in written if terms.locked.occurrence not in lacks(places.texts[n])), begin)

    def _longest(self, term: Occurrence) -> int:
        """The tokens of a term's longest form."""
        return max(len(self.tokens.pieces(form, " ", False)) for form in term.target_forms)

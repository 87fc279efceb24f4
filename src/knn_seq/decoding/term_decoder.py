"""Sentences decoded with binding terms: as they are, then with those pushed that are missing, then constrained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from knn_seq.decoding.due_terms import DueTerms, LockedPrefix, TermTokens
from knn_seq.decoding.terms import TermBatch
from knn_seq.glossary import Occurrence, TermCheck, TermFinder
from knn_seq.glossary.function_words import is_function_word
from knn_seq.glossary.words import junction
from knn_seq.models import Hypothesis, Model, Source, StepHook, TokenPair

Decode = Callable[[list[int], StepHook | None], list[list[Hypothesis]]]
"""Decodes the sentences with these numbers, with a hook behind that of the neighbours; the n best outputs of each."""

PASSES = 3  # in which a sentence is decoded again at the most
PLACES = 4  # for a term that are compared
BEFORE_FUNCTION_WORD = 0.5  # what attention counts where an article or its like was written


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

    def generate(self, sources: Sequence[Source], finder: TermFinder, decode: Decode) -> list[BoundOutput]:
        """Decode a batch.

        Args:
            sources: The sentences.
            finder: Finds their terms.
            decode: Does the decoding.
        """
        due = self.tokens.due(sources, finder)
        # What a sentence becomes without its terms is kept if it has them; else only those are pushed that it lacks.
        found = {
            number: BoundOutput(outputs, None if terms is None else terms.check)
            for number, (outputs, terms) in enumerate(zip(decode([*range(len(sources))], None), due, strict=True))
        }
        lacking = {
            number: replace(terms, pushed=self._lacking(terms, found[number]))
            for number, terms in enumerate(due)
            if terms is not None and self._faults(terms, found[number])
        }
        batch, places = TermBatch(list(lacking.values()), self.tokens, self.ends), list(lacking)
        if lacking:
            for number, outputs in zip(places, decode(places, batch), strict=True):
                found[number] = BoundOutput(outputs, found[number].check)
        lacking = {number: terms for number, terms in lacking.items() if self._faults(terms, found[number])}
        for _ in range(PASSES):
            if not lacking:
                break
            again = [
                self._constrained(sources[number], terms, found[number].outputs[0].tokens, batch, places.index(number))
                for number, terms in lacking.items()
            ]
            places, batch = list(lacking), TermBatch(again, self.tokens, self.ends, strict=True)
            for number, terms, outputs in zip(places, again, decode(places, batch), strict=True):
                other = BoundOutput(outputs, terms.check)
                faults = self._faults(terms, other)
                if faults <= self._faults(terms, found[number]):
                    found[number] = other
                lacking[number] = terms
                if not faults:
                    del lacking[number]
        return [found[number] for number in range(len(sources))]

    def _lacking(self, terms: DueTerms, output: BoundOutput) -> frozenset[int]:
        return frozenset(terms.check.missing(self.model.tokenizer.decode(output.outputs[0].tokens)))

    def _faults(self, terms: DueTerms, output: BoundOutput) -> int:
        """How many terms the best output lacks, and how often it has what is forbidden."""
        text = self.model.tokenizer.decode(output.outputs[0].tokens)
        return len(terms.check.missing(text)) + len(terms.check.forbidden(text))

    def _constrained(
        self, source: Source, terms: DueTerms, output: Sequence[int], batch: TermBatch, sentence: int
    ) -> DueTerms:
        """What is due when a sentence is decoded again, and from where on it is free."""
        written = [token for token in output if token not in self.ends]
        text = self.model.tokenizer.decode(written)
        banned = [self._tokens_of(written, match.start, match.end) for match in terms.check.forbidden(text)]
        missing = terms.check.missing(text)
        first = 0 if terms.locked is None else len(terms.locked.tokens) + 1
        locked, last = terms.locked, len(written)
        if len(written) == len(output):  # it was cut: the terms need space before
            last = max(0, last - 1 - sum(self._longest(terms.occurrences[number]) for number in missing))
        if missing:
            possible = range(min(first, last), last + 1)
            places = [self._best_place(source, terms, written, batch, sentence, number, possible) for number in missing]
            place, number = min(zip(places, missing, strict=True))
            locked = LockedPrefix(tuple(written[:place]), number)
        return replace(terms, locked=locked, banned=[*terms.banned, *filter(None, banned)])

    def _longest(self, term: Occurrence) -> int:
        """The tokens of a term's longest form."""
        return max(len(self.tokens.pieces(form, " ", False)) for form in term.target_forms)

    def _best_place(
        self,
        source: Source,
        terms: DueTerms,
        written: Sequence[int],
        batch: TermBatch,
        sentence: int,
        occurrence: int,
        considered: range,
    ) -> int:
        """Behind how many tokens of an output a term belongs that it lacks.

        Where the model has looked at its words; if it never did, where its pieces are most likely.
        """
        texts = [self.model.tokenizer.decode(written[:length]) for length in range(len(written) + 1)]
        possible = [
            place
            for place in considered
            if place == len(written) or junction(texts[place], texts[place + 1]) is not None
        ] or [considered.start]
        looked = {place.prefix: place.attention for place in batch.looked[sentence, occurrence]}
        attention = {place: looked.get(tuple(written[:place]), 0.0) for place in possible}
        if any(attention.values()):
            for place in possible:
                if place < len(written) and is_function_word(
                    texts[place + 1][len(texts[place]) :], terms.check.language
                ):
                    attention[place] *= BEFORE_FUNCTION_WORD
            return max(possible, key=lambda place: (attention[place], -place))
        one = terms.occurrences[occurrence]
        pieces = {
            place: self.tokens.pieces(one.target_forms[0], " " if place else "", terms.starts_sentence(texts[place]))
            for place in possible
        }
        end = next(iter(self.ends))
        first_pieces = self.model.score([TokenPair(source.tokens, [*written, end])]).log_probs
        likely = sorted(possible, key=lambda place: -float(first_pieces[place, pieces[place][0]]))[:PLACES]
        return max(likely, key=lambda place: self._log_prob(source, written[:place], pieces[place]))

    def _log_prob(self, source: Source, before: Sequence[int], pieces: Sequence[int]) -> float:
        """log p_MT of pieces behind other tokens."""
        log_probs = self.model.score([TokenPair(source.tokens, [*before, *pieces])]).log_probs[-len(pieces) :]
        return sum(float(row[token]) for row, token in zip(log_probs, pieces, strict=True))

    def _tokens_of(self, written: Sequence[int], start: int, end: int) -> list[int]:
        """The tokens that make up a part of a text, from one character to another."""
        decode = self.model.tokenizer.decode
        last = next((n for n in range(1, len(written) + 1) if len(decode(written[:n])) >= end), len(written))
        begin = next((n for n in range(last, 0, -1) if len(decode(written[:n])) <= start), 0)
        return list(written[begin:last])

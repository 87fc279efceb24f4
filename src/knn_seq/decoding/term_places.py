"""Where in an output a term belongs that it lacks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from knn_seq.decoding.due_terms import DueTerms, TermTokens
from knn_seq.glossary.function_words import is_function_word
from knn_seq.glossary.words import junction
from knn_seq.models import Model, Source, TokenPair

AT_ONCE = 32  # outputs that are read by the model
GLANCES = 0.1  # of the attention: words with less were not looked at, and those around them tell more
COMPARED = 4  # places whose likelihood is computed
BEFORE_FUNCTION_WORD = 0.5  # what attention counts where an article or its like was written
BEHIND_THE_END = 0.1  # what it counts behind the mark that ends the sentence


class TermPlaces:
    """The places of an output where a word can begin.

    Args:
        model: Has written it.
        tokens: Terms as tokens.
        source: What was read.
        written: The output without an end.
        attention: How much each token of it, and the end, looked at each source token; None: the model cannot tell.
        end: A token that ends an output.
    """

    def __init__(
        self,
        model: Model,
        tokens: TermTokens,
        source: Source,
        written: Sequence[int],
        attention: npt.NDArray[np.float32] | None,
        end: int,
    ) -> None:
        self.model, self.tokens, self.source, self.written = model, tokens, source, written
        self._attention, self._end = attention, end
        decode = model.tokenizer.decode
        self.texts = [decode(written[:length]) for length in range(len(written) + 1)]  # behind each token

    @classmethod
    def of(
        cls, model: Model, tokens: TermTokens, sources: Sequence[Source], written: Sequence[Sequence[int]], end: int
    ) -> list[TermPlaces]:
        """Those of many outputs."""
        looks: list[npt.NDArray[np.float32] | None] = []
        pairs = [TokenPair(source.tokens, [*tokens, end]) for source, tokens in zip(sources, written, strict=True)]
        for start in range(0, len(pairs), AT_ONCE):
            some = pairs[start : start + AT_ONCE]
            weights = model.attention(some)
            looks += [None] * len(some) if weights is None else [each.float().cpu().numpy() for each in weights]
        return [cls(model, tokens, *each, end) for each in zip(sources, written, looks, strict=True)]

    def best(self, terms: DueTerms, occurrence: int, considered: range) -> int:
        """Behind how many tokens a term belongs.

        Where the model has looked at its words, or if it never did at those around them; for a model that does not tell
        where it looks, where the term is most likely.

        Args:
            terms: The terms of the source.
            occurrence: That which is missing.
            considered: Numbers of tokens.
        """
        possible = [place for place in considered if self._begins_word(place)]
        taken = [(match.start, match.end) for match in terms.check.matches(self.texts[-1])]
        free = [place for place in possible if not any(start < len(self.texts[place]) < end for start, end in taken)]
        places = free or possible or [considered.start]
        span = terms.spans[occurrence]
        if self._attention is None or span is None:
            return self._likeliest(terms, occurrence, places)
        looks = self._looks(self._attention, span, places)
        return max(places, key=lambda place: (looks[place] * self._trust(place, terms), -place))

    def tokens_of(self, start: int, end: int) -> list[int]:
        """The tokens that make up a part of the text, from one character to another."""
        lengths = [len(text) for text in self.texts]
        last = next((n for n in range(1, len(lengths)) if lengths[n] >= end), len(self.written))
        begin = next((n for n in range(last, 0, -1) if lengths[n] <= start), 0)
        return list(self.written[begin:last])

    def _begins_word(self, place: int) -> bool:
        return place == len(self.written) or junction(self.texts[place], self.texts[place + 1]) is not None

    def _looks(
        self, attention: npt.NDArray[np.float32], span: tuple[int, int], places: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """How much each token looked at the source tokens of a span, or at more of those around it."""
        begin, end = span
        last = max(end, attention.shape[1] - 1)  # the end of a source is looked at for want of anything else
        while True:
            looks: npt.NDArray[np.float32] = attention[:, begin:end].sum(axis=1)
            if looks[places].max() >= GLANCES or (begin == 0 and end == last):
                return looks
            begin, end = max(begin - 1, 0), min(end + 1, last)

    def _trust(self, place: int, terms: DueTerms) -> float:
        if place == len(self.written):
            return BEHIND_THE_END if terms.ends_sentence(self.texts[place]) else 1.0
        added = self.texts[place + 1][len(self.texts[place]) :]
        return BEFORE_FUNCTION_WORD if is_function_word(added, terms.check.language) else 1.0

    def _likeliest(self, terms: DueTerms, occurrence: int, places: Sequence[int]) -> int:
        form = terms.occurrences[occurrence].target_forms[0]
        pieces = {
            place: self.tokens.pieces(form, " " if place else "", terms.starts_sentence(self.texts[place]))
            for place in places
        }
        log_probs = self.model.score([TokenPair(self.source.tokens, [*self.written, self._end])]).log_probs
        first = sorted(places, key=lambda place: -float(log_probs[place, pieces[place][0]]))[:COMPARED]
        return max(first, key=lambda place: self._log_prob(self.written[:place], pieces[place]))

    def _log_prob(self, before: Sequence[int], pieces: Sequence[int]) -> float:
        """log p_MT of pieces behind other tokens."""
        log_probs = self.model.score([TokenPair(self.source.tokens, [*before, *pieces])]).log_probs[-len(pieces) :]
        return sum(float(row[token]) for row, token in zip(log_probs, pieces, strict=True))

from __future__ import annotations

from collections.abc import Sequence

from knn_seq.glossary import TermUse
from knn_seq.models import Hypothesis, PairTokenizer


class Translation(str):
    """A translation: its text, which also knows what it was made of.

    Attributes:
        source: The source text.
        tokens: The target tokens, the end-of-sentence token last unless the output was cut.
        score: The sum of log p of the tokens, in the distribution that was decoded from.
        alternatives: The next best translations, if more than one was asked for.
        source_cut: The source was longer than the model can read, and its end was left out.
        terms: What became of each term of the source that a glossary has.
    """

    source: str
    tokens: list[int]
    score: float
    alternatives: list[Translation]
    source_cut: bool
    terms: list[TermUse]

    def __new__(
        cls,
        text: str,
        source: str,
        tokens: Sequence[int],
        score: float = 0.0,
        alternatives: Sequence[Translation] = (),
        source_cut: bool = False,
        terms: Sequence[TermUse] = (),
    ) -> Translation:
        """A string with attributes."""
        translation = super().__new__(cls, text)
        translation.source, translation.tokens, translation.score = source, list(tokens), score
        translation.alternatives, translation.source_cut = list(alternatives), source_cut
        translation.terms = list(terms)
        return translation

    @classmethod
    def of(
        cls, found: Sequence[Hypothesis], source: str, tokenizer: PairTokenizer, source_cut: bool = False
    ) -> Translation:
        """The best output of a search, with the others as its alternatives.

        Args:
            found: The outputs, best first.
            source: The source text.
            tokenizer: Whose tokens they are.
            source_cut: See `Translation`.
        """
        best, *others = (cls(tokenizer.decode(each.tokens), source, each.tokens, each.score) for each in found)
        best.alternatives, best.source_cut = others, source_cut
        return best

    @property
    def text(self) -> str:
        """The text as a plain string."""
        return str(self)

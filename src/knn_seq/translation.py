from __future__ import annotations

from collections.abc import Sequence


class Translation(str):
    """A translation: its text, which also knows what it was made of.

    Attributes:
        source: The source text.
        tokens: The target tokens, the end-of-sentence token last unless the output was cut.
        alternatives: The next best translations, if more than one was asked for.
        source_cut: The source was longer than the model can read, and its end was left out.
    """

    source: str
    tokens: list[int]
    alternatives: list[Translation]
    source_cut: bool

    def __new__(
        cls, text: str, source: str, tokens: Sequence[int], alternatives: Sequence[Translation] = ()
    ) -> Translation:
        """A string with attributes."""
        translation = super().__new__(cls, text)
        translation.source, translation.tokens = source, list(tokens)
        translation.alternatives = list(alternatives)
        translation.source_cut = False
        return translation

    @property
    def text(self) -> str:
        """The text as a plain string."""
        return str(self)

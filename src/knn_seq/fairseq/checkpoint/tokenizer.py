"""Text to a fairseq model's tokens and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from knn_seq.fairseq.checkpoint.subwords import Subwords
from knn_seq.fairseq.dictionary import UNK, Dictionary
from knn_seq.models.base import PairTokenizer, UnknownToken
from knn_seq.models.fingerprint import vocabulary_fingerprint


class Moses:
    """Moses tokenization.

    Args:
        language: Of the text.
        dash_splits: Whether "a-b" becomes "a @-@ b".
        escape: Whether quotes and the like are written as HTML entities.
    """

    def __init__(self, language: str, dash_splits: bool = True, escape: bool = True) -> None:
        self.language, self.dash_splits, self.escape = language, dash_splits, escape

    def split(self, text: str) -> str:
        """The words, with spaces between them."""
        words: str = self._tokenizer.tokenize(
            text, aggressive_dash_splits=self.dash_splits, return_str=True, escape=self.escape
        )
        return words

    def join(self, words: str) -> str:
        """The text of words."""
        text: str = self._detokenizer.detokenize(words.split())
        return text

    @cached_property
    def _tokenizer(self) -> Any:
        from sacremoses import MosesTokenizer

        return MosesTokenizer(self.language)

    @cached_property
    def _detokenizer(self) -> Any:
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(self.language)

    def __reduce__(self) -> tuple[type[Moses], tuple[str, bool, bool]]:
        return Moses, (self.language, self.dash_splits, self.escape)


@dataclass(frozen=True)
class Side:
    """One language of a model."""

    language: str
    dictionary: Dictionary
    subwords: Subwords
    words: Moses | None = None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text and its end."""
        return self.dictionary.encode(self.subwords.split(text if self.words is None else self.words.split(text)))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens before the end."""
        text = self.subwords.join(self.dictionary.decode(tokens))
        return text if self.words is None else self.words.join(text)


class FairseqTokenizer(PairTokenizer):
    """The two sides of a model.

    Args:
        source: The side to translate from.
        target: The side to translate to.
        source_prefix: Tokens before every source: a multilingual model's language token.
        languages: All languages of a multilingual model.
    """

    unknown = UnknownToken(UNK, UNK)

    def __init__(
        self, source: Side, target: Side, source_prefix: Sequence[int] = (), languages: Sequence[str] = ()
    ) -> None:
        self.source, self.target = source, target
        self.source_prefix, self.languages = tuple(source_prefix), tuple(languages)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens and the end."""
        return [[*self.source_prefix, *self.source.encode(text)] for text in texts]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens and the end."""
        return [self.target.encode(text) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text, with subwords and tokenization undone."""
        return self.target.decode(tokens)

    def token(self, token: int) -> str:
        """The dictionary's symbol."""
        symbols = self.target.dictionary.symbols
        return symbols[token] if 0 <= token < len(symbols) else ""

    def why_unknown(self, side: str) -> str:
        """Which file that side's subwords are of, or where one was looked for."""
        return (self.source if side == "source" else self.target).subwords.why_unknown()

    def fingerprint(self) -> str:
        """A hash of both dictionaries."""
        return dictionaries_fingerprint(self.source.dictionary.symbols, self.target.dictionary.symbols)


def dictionaries_fingerprint(source: Sequence[str], target: Sequence[str]) -> str:
    """A hash of the symbols of both dictionaries, special ones included, and their order."""
    sides = {"source": source, "target": target}
    return vocabulary_fingerprint(
        {
            f"{side} {number} {symbol}": number
            for side, symbols in sides.items()
            for number, symbol in enumerate(symbols)
        }
    )

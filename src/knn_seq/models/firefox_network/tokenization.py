"""The SentencePiece vocabulary of a Firefox translation model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from knn_seq.errors import DamagedFile

# Characters with a plain twin; the twin stands in where a vocabulary lacks the character.
_TWINS = {
    '"': "“”„‟«»″",
    "'": "‘’‚‛‹›′´`",
    "-": "‐‑‒–—―−",
    "...": "…",
    " ": "\u00a0\u2007\u2009\u202f",
    "": "\u00ad\u200b\ufeff",
    "*": "•",
    "x": "×",
}


class FirefoxTokenizer:
    """Text to pieces and back, with one vocabulary for both languages.

    Args:
        path: The SentencePiece model (`vocab.*.spm`); a pickled tokenizer reads it again from there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise DamagedFile(f"Cannot read {path} as a SentencePiece vocabulary: get the file again.") from error
        self.vocab_size: int = self._processor.get_piece_size()
        self.eos_token_id: int = self._processor.eos_id()
        self.unknown_token_id: int = self._processor.unk_id()
        if self.eos_token_id < 0:
            raise DamagedFile(f"The vocabulary {path} has no end-of-sentence piece: use a model's own vocabulary.")
        twins = {character: twin for twin, characters in _TWINS.items() for character in characters}
        self._twins = str.maketrans({character: twin for character, twin in twins.items() if self._lacks(character)})

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, with the end-of-sentence id at the end."""
        plain = [text.translate(self._twins) for text in texts]
        encoded: list[list[int]] = self._processor.encode(plain, add_eos=True, num_threads=1)
        return encoded

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids before the first end-of-sentence id."""
        numbers = list(map(int, ids))
        if self.eos_token_id in numbers:
            del numbers[numbers.index(self.eos_token_id) :]
        if numbers and max(numbers) >= self.vocab_size:
            numbers = [number for number in numbers if number < self.vocab_size]
        text: str = self._processor.decode(numbers)
        return text

    def token(self, number: int) -> str:
        """The piece with that id; "▁" marks the start of a word."""
        piece: str = self._processor.id_to_piece(int(number)) if number < self.vocab_size else ""
        return piece

    def vocabulary_hash(self) -> str:
        """A fingerprint of the pieces, their order and their scores."""
        return hashlib.sha256(self._processor.serialized_model_proto()).hexdigest()

    def _lacks(self, character: str) -> bool:
        return self.unknown_token_id in self._processor.encode(character)

    def __reduce__(self) -> tuple[type[FirefoxTokenizer], tuple[Path]]:
        return FirefoxTokenizer, (self.path,)

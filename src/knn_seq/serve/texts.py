"""Texts of requests, which may have many sentences and lines, as sentences to translate and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from knn_seq.documents.sentences import sentence_starts

_LINES = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True)
class SplitText:
    """A text in pieces: every second one is a sentence, those between are the space around them."""

    pieces: tuple[str, ...]

    @classmethod
    def of(cls, text: str, language: str) -> SplitText:
        """Split a text at the ends of lines and sentences.

        Args:
            text: The text.
            language: Its language.
        """
        pieces: list[str] = [""]
        for line in _LINES.split(text):
            cuts = [0, *(sentence_starts(line, language) if line.strip() else ()), len(line)]
            for start, end in pairwise(cuts):
                part = line[start:end]
                stripped = part.strip()
                if not stripped:
                    pieces[-1] += part
                    continue
                begin = part.index(stripped)
                pieces[-1] += part[:begin]
                pieces += [stripped, part[begin + len(stripped) :]]
        return cls(tuple(pieces))

    @property
    def sentences(self) -> list[str]:
        """What is to be translated."""
        return list(self.pieces[1::2])

    def joined(self, translations: Sequence[str]) -> str:
        """The text with each sentence's translation in its place."""
        pieces = list(self.pieces)
        pieces[1::2] = [str(each) for each in translations]
        return "".join(pieces)

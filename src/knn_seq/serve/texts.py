"""Texts of requests, which may have many sentences and lines, as sentences to translate and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LINES = re.compile(r"(\r\n|\r|\n)")
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])(\s+)(?=[^\W_]|[\"'«“‘¿¡(\[])")


@dataclass(frozen=True)
class SplitText:
    """A text in pieces: every second one is a sentence, those between are the space around them."""

    pieces: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> SplitText:
        """Split a text at the ends of lines and sentences."""
        pieces: list[str] = [""]
        for line in _LINES.split(text):
            parts = [line] if _LINES.fullmatch(line) else _SENTENCE_END.split(line)
            for part in parts:
                stripped = part.strip()
                if not stripped:
                    pieces[-1] += part
                    continue
                start = part.index(stripped)
                pieces[-1] += part[:start]
                pieces += [stripped, part[start + len(stripped) :]]
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

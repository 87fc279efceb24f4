"""Outputs that say the same words twice."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from knn_seq.explain.words import UNSPACED

WORDS_IN_A_ROW = 4
PUNCTUATION = string.punctuation + "“”„‘’«»…—–¿¡"
# Scripts that put no space between words: there a letter is what a word is.
_WORD = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\S)+")


def repeated_ngrams(text: str, n: int = WORDS_IN_A_ROW) -> set[tuple[str, ...]]:
    """The n words in a row that occur more than once in a text, whatever their case and punctuation."""
    words = [word for word in (part.strip(PUNCTUATION) for part in _WORD.findall(text.lower())) if word]
    counts = Counter(zip(*(words[start:] for start in range(n)), strict=False))
    return {ngram for ngram, count in counts.items() if count > 1}


def new_repetitions(outputs: Sequence[str], base: Sequence[str]) -> list[bool]:
    """Which outputs repeat words in a row that the other output of the same source does not repeat.

    Args:
        outputs: A system's.
        base: Of the system that it is compared with.
    """
    pairs = zip(outputs, base, strict=True)
    return [bool(repeated_ngrams(output) - repeated_ngrams(other)) for output, other in pairs]

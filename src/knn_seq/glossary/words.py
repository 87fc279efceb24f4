"""Text as words that can be compared: as they are written, in any case, or by their stems."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from knn_seq.glossary.function_words import function_words
from knn_seq.glossary.stemmers import algorithm_of, installed

# Scripts that are written without spaces: each character is a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[\w\u0300-\u036f])+|[^\w\s]")
# Words with a spelling in common: the first mode asks for most.
MODES = ("exact", "folded", "stem")


class Word(NamedTuple):
    """A word of a text, or a mark of punctuation."""

    text: str
    start: int  # of its first character
    end: int  # behind its last


def words_of(text: str) -> list[Word]:
    """The words of a text, spaces left out."""
    return [Word(match[0], match.start(), match.end()) for match in _WORD.finditer(text)]


def junction(text: str, longer: str) -> str | None:
    """What stands before the word that a longer text adds to a text.

    Returns:
        Nothing where a text begins, a space, or the mark that the word is joined to, such as a bracket; None: it is no
        new word, but belongs to the last one.
    """
    if not text:
        return ""
    added = longer[len(text) :]
    if not longer.startswith(text) or not added or added[0].isspace() or not words_of(added)[0].text[0].isalnum():
        return " "
    joined = words_of(longer[len(text) - 1 :])
    if len(joined[0].text) > 1:
        return None
    return " " if re.match(f"[{_UNSPACED}]", added) else text[-1]


class Spelling:
    """How the words of a language are compared.

    Args:
        language: Its code, such as "pt" or "pt_BR"; None, or one without a stemmer: stems are the words themselves.
    """

    def __init__(self, language: str | None = None) -> None:
        self.language = language
        self.algorithm = installed(algorithm_of(language))
        self.stems = self.algorithm is not None

    def keys(self, words: list[str], mode: str) -> list[str]:
        """What words have in common with those that count as the same in a mode."""
        key = self._key(mode)
        return [key(word) for word in words]

    def _key(self, mode: str) -> Callable[[str], str]:
        if mode == "exact":
            return _exact
        return _folded if mode == "folded" or self.algorithm is None else _stemming(self.algorithm)


@lru_cache(maxsize=1 << 16)
def _exact(word: str) -> str:
    return unicodedata.normalize("NFC", word)


@lru_cache(maxsize=1 << 16)
def _folded(word: str) -> str:
    return unicodedata.normalize("NFC", word.casefold())


@lru_cache(maxsize=8)
def _stemming(algorithm: str) -> Callable[[str], str]:
    import snowballstemmer

    stemmer, others = snowballstemmer.stemmer(algorithm), function_words(algorithm)

    @lru_cache(maxsize=1 << 16)
    def stem(word: str) -> str:
        folded = _folded(word)
        # A stemmer cuts "você" (you) and "vocais" (vocals) to the same letters.
        return folded if folded in others else str(stemmer.stemWord(folded))

    return stem

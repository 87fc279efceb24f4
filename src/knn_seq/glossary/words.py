"""Text as words that can be compared: as they are written, in any case, or by their stems."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

# Scripts that are written without spaces: each character is a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[\w\u0300-\u036f])+|[^\w\s]")
# Words with a spelling in common: the first mode asks for most.
MODES = ("exact", "folded", "stem")
_ALGORITHMS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nb": "norwegian",
    "ne": "nepali",
    "nl": "dutch",
    "nn": "norwegian",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}


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
        self.algorithm = _installed(algorithm_of(language))
        self.stems = self.algorithm is not None

    def keys(self, words: list[str], mode: str) -> list[str]:
        """What words have in common with those that count as the same in a mode."""
        key = self._key(mode)
        return [key(word) for word in words]

    def _key(self, mode: str) -> Callable[[str], str]:
        if mode == "exact":
            return _exact
        return _folded if mode == "folded" or self.algorithm is None else _stemming(self.algorithm)


def algorithm_of(language: str | None) -> str | None:
    """The name of a language's stemmer, by its code or its name; None: it has none."""
    if not language:
        return None
    name = language.lower()
    # "eng_Latn" and "en-US" begin with their language; three letters are cut to two where that is the same language.
    code = re.split(r"[-_]", name)[0]
    return _ALGORITHMS.get(code) or _ALGORITHMS.get(_THREE_LETTERS.get(code, "")) or (name if name in _NAMES else None)


_NAMES = frozenset(_ALGORITHMS.values())
_THREE_LETTERS = {
    "arb": "ar", "cat": "ca", "ces": "cs", "dan": "da", "deu": "de", "ell": "el", "eng": "en", "spa": "es",
    "est": "et", "eus": "eu", "pes": "fa", "fin": "fi", "fra": "fr", "gle": "ga", "hin": "hi", "hun": "hu",
    "hye": "hy", "ind": "id", "ita": "it", "lit": "lt", "nob": "nb", "npi": "ne", "nld": "nl", "nno": "nn",
    "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "srp": "sr", "swe": "sv", "tam": "ta", "tur": "tr",
}  # fmt: skip


@lru_cache(maxsize=1 << 16)
def _exact(word: str) -> str:
    return unicodedata.normalize("NFC", word)


@lru_cache(maxsize=1 << 16)
def _folded(word: str) -> str:
    return unicodedata.normalize("NFC", word.casefold())


def _installed(algorithm: str | None) -> str | None:
    """A stemmer that the installed library has; older ones know fewer languages."""
    import snowballstemmer

    return algorithm if algorithm in snowballstemmer.algorithms() else None


@lru_cache(maxsize=8)
def _stemming(algorithm: str) -> Callable[[str], str]:
    import snowballstemmer

    stemmer = snowballstemmer.stemmer(algorithm)

    @lru_cache(maxsize=1 << 16)
    def stem(word: str) -> str:
        return str(stemmer.stemWord(_folded(word)))

    return stem

"""Words that stand before a term and are no translation of it: articles, pronouns, auxiliary verbs."""

from __future__ import annotations

from functools import lru_cache

from knn_seq.glossary.stemmers import algorithm_of

SHORT = 3  # letters: in a language without a list, words of no more
_LISTS = {"english": "STOPWORDS_EN_PLUS"}  # where there are several
_FURTHER = {"english": ("shall", "would", "could", "may", "might", "must", "let", "upon", "unto")}
# What lists have of words that were cut at an apostrophe: pieces of many another word.
_FRAGMENTS = {"english": frozenset(("s", "t", "d", "m", "o", "y", "ma", "re", "ve", "ll", "ain", "don"))}


def is_function_word(word: str, language: str | None) -> bool:
    """Whether a word is one of those, or no word at all but punctuation."""
    letters = word.strip().casefold()
    if not any(map(str.isalnum, letters)):
        return True
    listed = function_words(language)
    return letters in listed if listed else letters.isalpha() and len(letters) <= SHORT


@lru_cache(maxsize=16)
def function_words(language: str | None) -> frozenset[str]:
    """Those of a language, in small letters; nothing if they are not known."""
    name = algorithm_of(language)
    if name is None:
        return frozenset()
    from bm25s import stopwords

    listed = getattr(stopwords, _LISTS.get(name, f"STOPWORDS_{name.upper()}"), ())
    return frozenset(map(str.casefold, (*listed, *_FURTHER.get(name, ())))) - _FRAGMENTS.get(name, frozenset())

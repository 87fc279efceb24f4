from __future__ import annotations

from typing import NamedTuple

from knn_seq.corpus.dates import iso_date

MISSING_COLUMN = "missing column"
EMPTY_SIDE = "empty side"
TOO_LONG = "too long"
NOT_UTF8 = "not UTF-8"
NOT_JSON = "not JSON"
MISSING_LANGUAGE = "missing language"
NOT_TRANSLATED = "not translated"


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str
    place: str  # in its corpus, for people: "line 17", "unit 12 (tuid 4711)"
    source_tokens: tuple[int, ...] | None = None  # of a corpus that was tokenized before, for the model as they are
    target_tokens: tuple[int, ...] | None = None
    id: str | None = None  # the corpus's own name for the pair, if it has one
    corpus: str | None = None  # the file that it comes from, as it was named
    date: str | None = None  # when it was last changed, as 2026-11-18T06:50:00Z


class BadPair(NamedTuple):
    """A place of a corpus where a sentence pair should be and none that can be used is."""

    place: str
    reason: str  # one of this module's constants, or a reader's own words


def make_pair(
    source: str,
    target: str,
    place: str,
    id: str | None = None,
    corpus: str | None = None,
    date: str | None = None,
) -> SentencePair | BadPair:
    """A sentence pair of two texts, without the space around them; a bad one if there is nothing to use.

    Args:
        source: The text to translate.
        target: Its translation.
        place: Where they stand.
        id: The corpus's own name for the pair; an empty one is none.
        corpus: Where the pair comes from, if the file that it stands in says so itself; an empty one is none.
        date: In any of the forms that `iso_date` knows; another one is none.
    """
    source, target = source.strip(), target.strip()
    if not source or not target:
        return BadPair(place, EMPTY_SIDE)
    try:  # "\ud800" is a good string, and good JSON, but half a character
        for text in (source, target, id or "", corpus or ""):
            text.encode()
    except UnicodeEncodeError:
        return BadPair(place, NOT_UTF8)
    return SentencePair(source, target, place, id=id or None, corpus=corpus or None, date=iso_date(date))

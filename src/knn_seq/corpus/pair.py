from __future__ import annotations

from typing import NamedTuple

MISSING_COLUMN = "missing column"
EMPTY_SIDE = "empty side"
TOO_LONG = "too long"
NOT_UTF8 = "not UTF-8"
NOT_JSON = "not JSON"


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str
    line: int  # of the corpus, the first is 1
    source_tokens: tuple[int, ...] | None = None  # of a corpus that was tokenized before, for the model as they are
    target_tokens: tuple[int, ...] | None = None


class BadLine(NamedTuple):
    """A line of a corpus that gives no sentence pair."""

    line: int  # the first is 1
    reason: str  # one of this module's constants, or another reader's own words

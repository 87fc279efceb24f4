"""Where the words of terms stand in a text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from knn_seq.glossary.words import MODES, Spelling, Word, words_of

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(frozen=True)
class Match(Generic[Owner]):  # a generic NamedTuple needs Python 3.11
    """A place in a text that has one of the patterns."""

    start: int  # character
    end: int
    mode: int  # how alike it is: a number of `MODES`
    owners: tuple[Owner, ...]  # of the pattern

    @property
    def rank(self) -> tuple[int, int, int]:
        """The smaller, the more it counts among those that overlap: the longest, the most alike, the first."""
        return self.start - self.end, self.mode, self.start


class Patterns(Generic[Owner]):
    """Words to look for, each on behalf of an owner.

    Args:
        spelling: Of their language.
    """

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        # For each mode, by the first word: all words, whether a space stands before each but the first, and the owners.
        self._patterns: dict[str, dict[str, dict[tuple[tuple[str, ...], tuple[bool, ...]], list[Owner]]]] = {}

    def add(self, owner: Owner, texts: Iterable[str], mode: str) -> None:
        """Look for texts.

        Args:
            owner: Whose they are.
            texts: A word or several each.
            mode: What counts as the same word, one of `MODES`.
        """
        for text in texts:
            words = words_of(text)
            if not words:
                continue
            keys = tuple(self.spelling.keys([word.text for word in words], mode))
            by_first = self._patterns.setdefault(mode, {}).setdefault(keys[0], {})
            owners = by_first.setdefault((keys, _spaces(words)), [])
            if owner not in owners:
                owners.append(owner)

    def all(self, text: str) -> list[Match[Owner]]:
        """Every place that has a pattern, also those that overlap."""
        if not self._patterns:
            return []
        words = words_of(text)
        spaces, found = _spaces(words), []
        for mode, patterns in self._patterns.items():
            keys = self.spelling.keys([word.text for word in words], mode)
            for place, key in enumerate(keys):
                for (wanted, gaps), owners in patterns.get(key, {}).items():
                    end = place + len(wanted)
                    if len(wanted) == 1 or (tuple(keys[place:end]) == wanted and spaces[place : end - 1] == gaps):
                        start, stop = words[place].start, words[end - 1].end
                        found.append(Match(start, stop, MODES.index(mode), tuple(owners)))
        return found


def without_overlaps(matches: Sequence[Match[Owner]]) -> list[Match[Owner]]:
    """The longest of those that overlap, in the order of the text."""
    kept: list[Match[Owner]] = []
    taken: defaultdict[int, bool] = defaultdict(bool)
    for match in sorted(matches, key=lambda match: match.rank):
        if not any(taken[place] for place in range(match.start, match.end)):
            taken.update(dict.fromkeys(range(match.start, match.end), True))
            kept.append(match)
    return sorted(kept, key=lambda match: match.start)


def _spaces(words: Sequence[Word]) -> tuple[bool, ...]:
    """Whether there is a space between each word and the next."""
    return tuple(later.start > earlier.end for earlier, later in pairwise(words))

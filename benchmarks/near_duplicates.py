"""Sentences of a test set that a datastore has nearly as they are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

WORDS = 4  # of an n-gram
LARGEST_OVERLAP = 0.8  # of the n-grams of two sentences, those that both have
NO_WORD = re.compile(r"[\W\d_]+")


def without_near_duplicates(sources: Sequence[str], stored: Iterable[str]) -> list[int]:
    """The numbers of the sources that no stored one is nearly the same as.

    Two are nearly the same if they differ in case, digits and punctuation only, or if their sets of word 4-grams have a
    Jaccard similarity of more than 0.8.

    Args:
        sources: What is filtered.
        stored: What it is compared with.
    """
    grams = [ngrams(source) for source in sources]
    having: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, own in enumerate(grams):
        for gram in own:
            having[gram].append(number)
    found: set[int] = set()
    for other in map(ngrams, stored):
        shared = Counter(number for gram in other for number in having.get(gram, ()))
        found.update(
            number
            for number, count in shared.items()
            if count > LARGEST_OVERLAP * (len(grams[number]) + len(other) - count)
        )
    return [number for number in range(len(sources)) if number not in found]


def ngrams(text: str) -> frozenset[tuple[str, ...]]:
    """The word 4-grams of a sentence without case, digits and punctuation; of a shorter one all words together.

    One without any word is taken as it is.
    """
    words = NO_WORD.sub(" ", text.casefold()).split() or text.split()
    return frozenset(tuple(words[i : i + WORDS]) for i in range(max(len(words) - WORDS + 1, 1)))

"""Which word of a translation a word of its source became, as far as the two texts tell."""

from __future__ import annotations

import re
from collections.abc import Sequence

LEAST_PREFIX = 4  # letters that two words of two languages share if they are related
LEAST_STEM = 3  # letters that two forms of a word share
RELATED, SAME = 0.7, 1.0
DISTANCE_COST = 0.6  # of a word at the other end of the sentence

_WORD = re.compile(r"\w")


def align(source: Sequence[str], target: Sequence[str]) -> list[float]:
    """For each word of the source a position among the words of the target.

    Words that are equal or look related are anchors; what lies between two of them is spread evenly.

    Args:
        source: Its words and punctuation.
        target: Those of the translation.
    """
    if not target:
        return [0.0] * len(source)
    anchors = _anchors(source, target)
    places = [-1, *sorted(anchors), len(source)]
    positions = [-1.0, *(float(anchors[place]) for place in places[1:-1]), float(len(target))]
    aligned: list[float] = []
    for (left, start), (right, end) in zip(
        zip(places, positions, strict=True), zip(places[1:], positions[1:], strict=True), strict=False
    ):
        step = (end - start) / (right - left)
        aligned += [start + step * (place - left) for place in range(left + 1, right)]
        aligned += [end] * (right < len(source))
    return [min(max(position, 0.0), len(target) - 1.0) for position in aligned]


def _anchors(source: Sequence[str], target: Sequence[str]) -> dict[int, int]:
    scored = [
        (score - DISTANCE_COST * abs((i + 0.5) / len(source) - (j + 0.5) / len(target)), -i, -j)
        for i, first in enumerate(source)
        for j, second in enumerate(target)
        if (score := _similarity(first, second))
    ]
    anchors: dict[int, int] = {}
    used: set[int] = set()
    for _, i, j in sorted(scored, reverse=True):
        if -i not in anchors and -j not in used:
            anchors[-i] = -j
            used.add(-j)
    return anchors


def _similarity(first: str, second: str) -> float:
    if not (_WORD.search(first) and _WORD.search(second)):
        return 0.0  # punctuation tells little: there are many commas
    first, second = first.casefold(), second.casefold()
    if first == second:
        return SAME
    related = len(first) >= LEAST_PREFIX and first[:LEAST_PREFIX] == second[:LEAST_PREFIX]
    return RELATED if related else 0.0


def find_words(words: Sequence[str], target: Sequence[str], near: float) -> tuple[int, int] | None:
    """The first and the last word of a translation that some words became; None if they are not there.

    They stand there one after the other, in any case, or at least all of them, related and close together.

    Args:
        words: What to look for.
        target: The words of the translation.
        near: The position to prefer.
    """
    wanted, there = [word.casefold() for word in words], [word.casefold() for word in target]
    if not wanted:
        return None
    places = [j for j in range(len(there) - len(wanted) + 1) if there[j : j + len(wanted)] == wanted]
    if places:
        first = min(places, key=lambda place: abs(place - near))
        return first, first + len(wanted) - 1
    found = []
    for word in filter(_WORD.search, wanted):
        similar = [j for j, other in enumerate(there) if word == other or _related(word, other)]
        if not similar:
            return None
        found.append(min(similar, key=lambda place: abs(place - near)))
    close = bool(found) and max(found) - min(found) < 2 * len(wanted) + 1
    return (min(found), max(found)) if close else None


def _related(first: str, second: str) -> bool:
    """Forms of a word: one begins as the other does."""
    short, long = sorted((first, second), key=len)
    return (
        len(short) >= LEAST_STEM
        and long.startswith(short[: max(LEAST_STEM, len(short) - 2)])
        and len(long) <= len(short) + 3
    )

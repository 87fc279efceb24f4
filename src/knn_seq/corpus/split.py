from __future__ import annotations

import hashlib
from collections.abc import Sequence

from knn_seq.corpus.pair import SentencePair
from knn_seq.errors import InvalidSetting


def split_corpus(
    pairs: Sequence[SentencePair], sizes: tuple[int, int], seed: int
) -> tuple[list[SentencePair], list[SentencePair], list[SentencePair]]:
    """Split a corpus at random, with no source sentence in two parts, whatever its case and spacing.

    Where a pair goes depends on the seed and on its source, not on the platform nor on the order of the corpus.
    A source that comes more than once is taken completely or not at all, so a part can end up smaller than asked for.

    Args:
        pairs: The corpus.
        sizes: How many pairs of it are for dev and for test.
        seed: Another seed, another split.

    Returns:
        Train, dev and test, each in the order of the corpus.
    """
    if min(sizes) < 0 or sum(sizes) >= len(pairs):
        raise InvalidSetting(f"{len(pairs)} sentence pairs cannot be split into {sizes[0]} and {sizes[1]} and a rest.")
    groups: dict[str, list[int]] = {}
    for number, pair in enumerate(pairs):
        groups.setdefault(_normalise(pair.source), []).append(number)
    parts: tuple[list[int], list[int]] = ([], [])
    for source in sorted(groups, key=lambda text: hashlib.sha256(f"{seed}\n{text}".encode()).digest()):
        for part, size in zip(parts, sizes, strict=True):
            if len(part) + len(groups[source]) <= size:
                part += groups.pop(source)
                break
        if all(len(part) == size for part, size in zip(parts, sizes, strict=True)):
            break
    rest = [number for group in groups.values() for number in group]
    train, dev, test = ([pairs[number] for number in sorted(part)] for part in (rest, *parts))
    return train, dev, test


def _normalise(source: str) -> str:
    return " ".join(source.split()).casefold()

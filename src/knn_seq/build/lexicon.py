"""Which target tokens a source token becomes, learned from sentence pairs: IBM model 1 over the tokens of each pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.models.shortlist import Shortlist
from knn_seq.storage.ragged import Ragged

ROUNDS = 3  # of expectation maximisation
BEST = 100  # target tokens of a source token, at most
FREQUENT = 1000  # target tokens that may come anywhere
SENTENCES = 100_000  # that are read, at most
BLOCK = 1 << 21  # pairs of tokens that are looked at together
TABLE = 1 << 24  # pairs of tokens that are remembered, at most


class TokenPairs(NamedTuple):
    """Every token of some sources beside every token of their targets; a token that comes again counts once."""

    keys: NDArray[np.int64]  # (pairs,): source token × target vocabulary + target token
    places: NDArray[np.int64]  # (pairs,): which token of all targets it is
    sources: NDArray[np.int64]  # (pairs,): how many source tokens it stands beside


class Lexicon(NamedTuple):
    """How often a source token is expected to have become a target token."""

    keys: NDArray[np.int64]  # ascending, as those of `TokenPairs`
    counts: NDArray[np.float64]


def learn_shortlist(
    sources: Ragged,
    targets: Ragged,
    size: int,
    numbers: NDArray[np.int64] | None = None,
    best: int = BEST,
    frequent: int = FREQUENT,
    always: Sequence[int] = (),
) -> Shortlist:
    """For each source token the target tokens that it most probably becomes, and itself; beside, the most frequent.

    Args:
        sources: The tokens of sentences.
        targets: Those of their translations.
        size: Of the target vocabulary.
        numbers: The sentence pairs to learn from, of which at most `SENTENCES` are read; None: all.
        best: Target tokens of a source token, at most.
        frequent: Target tokens that may come anywhere.
        always: Others that may.
    """
    numbers = np.arange(len(sources)) if numbers is None else numbers
    numbers = numbers[:: -(-len(numbers) // SENTENCES) or 1]
    learned = Lexicon(np.empty(0, np.int64), np.empty(0))
    for pairs in token_pairs(sources, targets, size, numbers):
        learned = _merged(learned, pairs.keys, 1 / pairs.sources)
    for _ in range(ROUNDS - 1):
        learned = _again(learned, size, token_pairs(sources, targets, size, numbers))
    return _shortlist(learned, _most_frequent(targets, size, numbers, frequent, always), size, best)


def token_pairs(sources: Ragged, targets: Ragged, size: int, numbers: NDArray[np.int64]) -> Iterator[TokenPairs]:
    """The pairs of tokens of some sentence pairs, block by block."""
    block: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    total = 0
    for number in numbers:
        pair = np.unique(sources[number]).astype(np.int64), np.unique(targets[number]).astype(np.int64)
        block.append(pair)
        total += len(pair[0]) * len(pair[1])
        if total >= BLOCK:
            yield _crossed(block, size)
            block, total = [], 0
    if total:
        yield _crossed(block, size)


def _crossed(block: list[tuple[NDArray[np.int64], NDArray[np.int64]]], size: int) -> TokenPairs:
    source, target = (np.concatenate(side) for side in zip(*block, strict=True))
    lengths = np.array([(len(one), len(other)) for one, other in block])
    starts = np.cumsum(lengths, axis=0) - lengths
    counts = lengths.prod(axis=1)
    sentence = np.repeat(np.arange(len(block)), counts)
    within = np.arange(len(sentence)) - np.repeat(np.cumsum(counts) - counts, counts)
    row, column = np.divmod(within, lengths[sentence, 1])
    places = starts[sentence, 1] + column
    return TokenPairs(source[starts[sentence, 0] + row] * size + target[places], places, lengths[sentence, 0])


def _merged(lexicon: Lexicon, keys: NDArray[np.int64], counts: NDArray[np.float64]) -> Lexicon:
    """A lexicon with further counts; the smallest are dropped where it becomes too large."""
    order = np.argsort(keys)
    both = np.concatenate([lexicon.keys, keys[order]])
    counts = np.concatenate([lexicon.counts, counts[order]])
    order = np.argsort(both, kind="stable")  # merges what is in order
    both, counts = both[order], counts[order]
    first = np.flatnonzero(np.diff(both, prepend=-1))
    keys, counts = both[first], np.add.reduceat(counts, first) if len(first) else counts
    if len(keys) > TABLE:
        kept = np.sort(np.argpartition(-counts, TABLE // 2)[: TABLE // 2])
        keys, counts = keys[kept], counts[kept]
    return Lexicon(keys, counts)


def _again(lexicon: Lexicon, size: int, blocks: Iterator[TokenPairs]) -> Lexicon:
    """A round of expectation maximisation: each target token is divided among the source tokens by probability."""
    source = lexicon.keys // size
    probabilities = lexicon.counts / np.bincount(source, lexicon.counts)[source]
    expected = np.zeros(len(probabilities))
    for pairs in blocks:
        at = np.minimum(np.searchsorted(lexicon.keys, pairs.keys), len(expected) - 1)
        known = lexicon.keys[at] == pairs.keys
        shares = np.where(known, probabilities[at], 0.0)
        totals = np.bincount(pairs.places, shares)[pairs.places]
        np.add.at(expected, at, np.divide(shares, totals, out=np.zeros_like(shares), where=totals > 0))
    return Lexicon(lexicon.keys, expected)


def _most_frequent(
    targets: Ragged, size: int, numbers: NDArray[np.int64], count: int, always: Sequence[int]
) -> NDArray[np.int64]:
    seen = np.zeros(size, np.int64)
    for number in numbers:
        seen[np.unique(targets[number])] += 1
    best = np.argsort(-seen, kind="stable")[:count]
    return np.union1d(best[seen[best] > 0], np.asarray(always, np.int64)).astype(np.int64)


def _shortlist(lexicon: Lexicon, frequent: NDArray[np.int64], size: int, best: int) -> Shortlist:
    source = lexicon.keys // size
    order = np.lexsort((-lexicon.counts, source))
    rank = np.arange(len(order)) - np.searchsorted(source, source)  # `source` ascends, before and after
    chosen = lexicon.keys[order][(rank < best) & (lexicon.counts[order] > 0)]
    # Names and numbers are copied: where both sides have one vocabulary, a token may become itself.
    copies = np.arange(size, dtype=np.int64) * (size + 1)
    keys = np.union1d(chosen, copies)
    source_size = max(size, int(source.max(initial=-1)) + 1)
    offsets = np.searchsorted(keys, np.arange(source_size + 1, dtype=np.int64) * size)
    return Shortlist(offsets.astype(np.int64), keys % size, frequent, size)

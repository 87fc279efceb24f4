from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knn_seq.prune.base import PRUNING_METHODS, Evidence, PruningMethod, Selection, highest
from knn_seq.registry import Option

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # of a hash: odd, its bits without a pattern
SHIFT = np.uint64(29)
LARGEST_COST = 100.0  # as a logarithm


@PRUNING_METHODS.register("ngram")
class NgramPruning(PruningMethod):
    """Thins out entries whose target n-gram is there often and costs the model as much (after PCKMT, Wang et al. 2022).

    The n-gram of an entry is its value and the n − 1 target tokens before it.  Its cost is the lowest perplexity, under
    the model alone, of the last b tokens of the n-gram, b from 1 to n.  Entries with the same n-gram whose costs round
    to the same power of √2 are one group: they teach the same.  (The paper finds groups by affinity propagation over
    costs, whose time grows with the square of a group.)  Groups are thinned out evenly: an entry that comes r-th in a
    random order within its group of m is kept with priority −r/m, the first one of each group before all others, the
    costlier groups first where priorities are equal.
    """

    options = {
        "n": Option(2, "tokens of an n-gram", int, 1),
        "seed": Option(0, "of the order within groups", int, 0),
    }

    def select(self, evidence: Evidence, keep: int) -> Selection:
        """See `PruningMethod.select`."""
        n = self.option_values["n"]
        ngrams, costs = _ngrams(evidence, n), _costs(evidence, n)
        groups = _mixed(ngrams ^ np.round(2 * np.log2(costs)).astype(np.int64).view(np.uint64))
        ranks, sizes = _ranks(groups, np.random.default_rng(self.option_values["seed"]))
        ease = 1 / costs  # 0 to 1: between two ranks
        return Selection(highest(np.where(ranks > 0, -ranks / sizes, 0.0) - 1e-3 * ease, keep))


def _ngrams(evidence: Evidence, n: int) -> NDArray[np.uint64]:
    """A hash of each entry's n-gram, (entries,)."""
    targets, hashes = evidence.store.targets, np.zeros(len(evidence), np.uint64)
    for block in evidence.blocks():
        sentences, positions = evidence.store.locate(np.arange(block.start, block.stop))
        places = targets.offsets[sentences] + positions
        for back in range(n):
            tokens = np.where(positions >= back, targets.items[np.maximum(places - back, 0)], -1)
            hashes[block] = _mixed(hashes[block] ^ (tokens + 2).astype(np.uint64))
    return hashes


def _costs(evidence: Evidence, n: int) -> NDArray[np.float64]:
    """The lowest perplexity of the last tokens of each entry's n-gram, (entries,); those that are no entries end it."""
    costs = np.empty(len(evidence))
    for block in evidence.blocks():
        first = max(block.start - n + 1, 0)
        entries = np.arange(first, block.stop)
        sentences, positions = evidence.store.locate(entries)
        log_probs = evidence.log_probs[first : block.stop, 0].astype(np.float64)
        own = np.arange(block.start - first, len(entries))
        sums = log_probs[own].copy()
        highest_mean, unbroken = sums.copy(), np.ones(len(own), np.bool_)
        for back in range(1, n):
            before = np.maximum(own - back, 0)
            unbroken &= (own >= back) & (sentences[before] == sentences[own])
            unbroken &= positions[before] == positions[own] - back
            sums += log_probs[before]
            highest_mean = np.where(unbroken, np.maximum(highest_mean, sums / (back + 1)), highest_mean)
        costs[block] = np.exp(-np.maximum(highest_mean, -LARGEST_COST))
    return costs


def _ranks(groups: NDArray[np.uint64], generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The place of each entry in a random order within its group, and the group's size; both (entries,)."""
    shuffled = generator.permutation(len(groups))
    order = shuffled[np.argsort(groups[shuffled], kind="stable")]  # group by group
    starts = np.flatnonzero(np.concatenate([[True], groups[order][1:] != groups[order][:-1]]))
    lengths = np.diff(np.append(starts, len(groups)))
    ranks, sizes = np.empty(len(groups), np.int64), np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, lengths)
    sizes[order] = np.repeat(lengths, lengths)
    return ranks, sizes


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Other numbers, in which every bit depends on all bits of these."""
    for _ in range(2):
        numbers = numbers * MULTIPLIER
        numbers = numbers ^ (numbers >> SHIFT)
    return numbers

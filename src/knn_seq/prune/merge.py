from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import InvalidSetting
from knn_seq.prune.base import PRUNING_METHODS, Evidence, PruningMethod, Selection
from knn_seq.registry import Option

ROUNDS = 32  # near pairs are merged before far ones, in so many steps
SAMPLED = 1 << 20  # pairs out of which the steps are chosen


@PRUNING_METHODS.register("merge")
class MergePruning(PruningMethod):
    """Merges entries with neighbours of the same value (greedy merging, He et al. 2021).

    Pairs of an entry and a neighbour of the same value are merged greedily, the nearest first: one stays, with its key,
    and its count grows by that of the other.  An entry into which others were merged stays itself, so that it stands
    only for what is near to it.  Only if too many entries are left then, these are merged with each other, those that
    stand for fewer into those that stand for more.  Pairs are not sorted, which would take their number in memory, but
    taken in 32 steps of growing distance, in each in the order of the entries.
    """

    options = {"neighbours": Option(8, "neighbours of an entry that it may be merged with", int, 1)}
    reads_model = False

    def select(self, evidence: Evidence, keep: int) -> Selection:
        """See `PruningMethod.select`."""
        groups = _Groups(len(evidence), evidence.store.counts)
        steps = [-np.inf, *_steps(evidence)]
        for again in (False, True):
            for lower, upper in pairwise(steps):
                for block in evidence.blocks():
                    if groups.left > keep:
                        groups.merge(*_pairs(evidence, block, lower, upper), keep, again)
        if groups.left > keep:
            raise InvalidSetting(
                f"No more than {1 - groups.left / len(evidence):.0%} of the entries have neighbours of the same value "
                f"to be merged with: keep at least {groups.left / len(evidence):.2f}, or let them look at more "
                "neighbours (--method-option neighbours=32)."
            )
        return Selection(groups.kept, groups.counts)


class _Groups:
    """Entries that are merged step by step.

    Args:
        entries: How many there are.
        counts: How many each stands for already, (entries,); None: itself.
    """

    def __init__(self, entries: int, counts: NDArray[np.int32] | None) -> None:
        self.left = entries
        self.kept = np.ones(entries, np.bool_)
        self.counts = np.ones(entries, np.int64) if counts is None else counts.astype(np.int64)
        self._parents = np.arange(entries)
        self._merged = np.zeros(entries, np.int8)  # 1: others were merged into it

    def merge(self, entries: list[int], others: list[int], keep: int, again: bool) -> None:
        """Merge each entry with the other beside it, until `keep` are left.

        Args:
            entries: Entries.
            others: Those to merge them with.
            keep: How many are to be left.
            again: Whether also entries that were merged before.
        """
        for entry, other in zip(entries, others, strict=True):
            if self.left == keep:
                return
            if not again and self._merged[entry] + self._merged[other] > 1:
                continue
            stays, goes = self._representative(entry), self._representative(other)
            if stays == goes or not (again or (stays == entry and goes == other)):
                continue
            if (self._merged[goes], self.counts[goes], stays) > (self._merged[stays], self.counts[stays], goes):
                stays, goes = goes, stays
            self._parents[goes], self.kept[goes], self._merged[stays] = stays, False, 1
            self.counts[stays] += self.counts[goes]
            self.left -= 1

    def _representative(self, entry: int) -> int:
        parents = self._parents
        while (parent := int(parents[entry])) != entry:
            parents[entry] = parents[parent]
            entry = parent
        return entry


def _pairs(evidence: Evidence, block: slice, lower: float, upper: float) -> tuple[list[int], list[int]]:
    """The entries of a block and their neighbours of the same value, at a distance between two limits."""
    values, neighbours = evidence.store.values.items, evidence.neighbours[block]
    distances = evidence.distances[block]
    rows, places = np.nonzero((neighbours >= 0) & (distances > lower) & (distances <= upper))
    entries, others = rows + block.start, neighbours[rows, places]
    same = values[entries] == values[others]
    return entries[same].tolist(), others[same].tolist()


def _steps(evidence: Evidence) -> list[float]:
    """Growing distances with about equally many pairs between them; the last is beyond all."""
    step = max(len(evidence) * evidence.distances.shape[1] // SAMPLED, 1)
    sample = evidence.distances[::step]
    if not sample.size:
        return []
    inner = np.quantile(sample, np.arange(1, ROUNDS) / ROUNDS).tolist()
    return [*np.unique(inner).tolist(), np.inf]

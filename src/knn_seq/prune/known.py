from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knn_seq.prune.base import PRUNING_METHODS, Evidence, PruningMethod, Selection, highest
from knn_seq.registry import Option

CERTAINTIES = (0.95, 0.8, 0.5, 0.0)  # p_MT of an entry's value: the more certain ones go first


@PRUNING_METHODS.register("known")
class KnownPruning(PruningMethod):
    """Drops entries that the model knows and that their neighbours know (after PLAC, Zhu et al. 2023).

    An entry is known to the model if it alone holds the entry's value most likely, and known to its neighbours as far
    as those that stay have its value.  Entries go whose neighbours all stay and have their value, then those with one
    such neighbour less, and so on, always those first whose values the model holds more likely.  (The paper drops
    entries at random where the model knows entry and neighbours; where nothing near stays, neighbours that are left
    speak for other values, which harms a combiner whose λ does not depend on them.)  Entries that the model does not
    know go only when all others are gone.
    """

    options = {"neighbours": Option(8, "neighbours of an entry that may know it", int, 0)}

    def select(self, evidence: Evidence, keep: int) -> Selection:
        """See `PruningMethod.select`."""
        known, certainty = evidence.predicted(), np.exp(evidence.log_probs[:, 0])
        kept = np.ones(len(evidence), np.bool_)
        surplus = len(evidence) - keep
        for agreeing in range(evidence.neighbours.shape[1], 0, -1):
            for least in CERTAINTIES:
                for block in evidence.blocks():
                    if surplus:
                        candidates = block.start + np.flatnonzero((known & kept)[block] & (certainty[block] >= least))
                        surplus -= _drop(evidence, candidates, kept, agreeing, surplus)
        if surplus:
            kept &= highest(np.where(known, -certainty, 1 - certainty) - 3.0 * ~kept, keep)
        return Selection(kept)


def _drop(evidence: Evidence, candidates: NDArray[np.int64], kept: NDArray[np.bool_], agreeing: int, most: int) -> int:
    """Drop candidates, one after the other, that have so many neighbours left of their own value; returns how many."""
    values, neighbours = evidence.store.values.items, evidence.neighbours[candidates]
    agree = (neighbours >= 0) & (values[neighbours] == values[candidates][:, None])
    possible = (agree & kept[neighbours]).sum(axis=1) >= agreeing
    dropped = 0
    for entry, row, same in zip(candidates[possible], neighbours[possible], agree[possible], strict=True):
        if dropped == most:
            break
        if np.count_nonzero(kept[row[same]]) >= agreeing:
            kept[entry] = False
            dropped += 1
    return dropped

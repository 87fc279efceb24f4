from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knn_seq.prune.base import PRUNING_METHODS, Evidence, PruningMethod, Selection, highest
from knn_seq.registry import Option

ROUNDS = 20  # after each of them it is seen anew which neighbours are left
WEIGHT = 0.3  # λ of the neighbours
SAMPLED = 1 << 20  # distances out of which a usual one is taken


@PRUNING_METHODS.register("known")
class KnownPruning(PruningMethod):
    """Drops entries that the model and their neighbours predict (after PLAC, Zhu et al. 2023).

    How well an entry is predicted without itself is what kNN-MT would make of its value v at its own key:

        λ · Σ_i 1[v = v_i, i stays] · w_i + (1−λ) · p_MT(v)          w_i ∝ exp(−‖k_i − k‖² / τ)

    with λ = 0.3 and τ the median distance of neighbours.  The w_i of all its neighbours sum to 1, also when some of
    them are gone: where nothing near stays, no neighbour speaks for it.  The best predicted entries go first, in 20
    rounds: those whose neighbours went in earlier ones are predicted less well, and stay longer.  (The paper drops
    entries at random where the model knows entry and neighbours.)  Entries whose values the model alone does not hold
    most likely go only when all others are gone.
    """

    options = {"neighbours": Option(8, "neighbours of an entry that may predict it", int, 0)}

    def select(self, evidence: Evidence, keep: int) -> Selection:
        """See `PruningMethod.select`."""
        kept, surplus = np.ones(len(evidence), np.bool_), len(evidence) - keep
        known, usual = evidence.predicted(), _usual_distance(evidence)
        scores = np.empty(len(evidence), np.float32)
        for done in range(1, ROUNDS + 1):
            for block in evidence.blocks():
                scores[block] = _mixture(evidence, block, kept, usual) - ~known[block]
            scores[~kept] = -np.inf
            kept &= ~highest(scores, surplus * done // ROUNDS - surplus * (done - 1) // ROUNDS)
        return Selection(kept)


def _mixture(evidence: Evidence, block: slice, kept: NDArray[np.bool_], usual: float) -> NDArray[np.floating]:
    """How well each entry is predicted without itself, (block,): see `KnownPruning`."""
    values, neighbours, distances = evidence.store.values.items, evidence.neighbours[block], evidence.distances[block]
    found = neighbours >= 0
    weights = np.exp(-np.where(found, distances - distances[:, :1], 0) / usual) * found
    agree = kept[neighbours] & (values[neighbours] == values[block][:, None])
    of_neighbours = (weights * agree).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)  # the nearest one weighs 1
    return np.asarray(WEIGHT * of_neighbours + (1 - WEIGHT) * np.exp(evidence.log_probs[block, 0]))


def _usual_distance(evidence: Evidence) -> float:
    """The median distance of neighbours, or their mean if most are equal to the entry."""
    step = max(evidence.distances.size // SAMPLED, 1)
    distances = np.abs(evidence.distances[::step][evidence.neighbours[::step] >= 0])
    return float(np.median(distances) or distances.mean() or 1) if len(distances) else 1.0

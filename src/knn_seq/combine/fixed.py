from __future__ import annotations

import torch
from torch import Tensor

from knn_seq.combine.base import COMBINERS, Combination, Combiner, CombinerInputs
from knn_seq.index import Neighbours
from knn_seq.settings import SearchSettings


@COMBINERS.register("fixed")
class FixedCombiner(Combiner):
    """Vanilla kNN-MT: one temperature, p_kNN(y) ∝ Σ 1[y = v_i]·exp(−d_i/τ), and one interpolation weight λ."""

    def _combine(self, inputs: CombinerInputs, settings: SearchSettings) -> Combination:
        return Combination(1.0, distance_softmax(inputs.neighbours, settings.temperature))


def distance_softmax(neighbours: Neighbours, temperature: float) -> Tensor:
    """The softmax of −d/τ over each row, (rows, k); missing neighbours have none of it."""
    return torch.softmax(neighbours.distances / -temperature, dim=1)

from __future__ import annotations

import torch
from torch import Tensor

from knn_seq.combine.base import COMBINERS, Combination, Combiner, CombinerInputs
from knn_seq.index import Neighbours
from knn_seq.settings import SearchSettings


@COMBINERS.register("fixed")
class FixedCombiner(Combiner):
    """Vanilla kNN-MT: one temperature, p_kNN(y) ∝ Σ 1[y = v_i]·c_i·exp(−d_i/τ), and one interpolation weight λ.

    c_i, the number of entries that entry i stands for, is 1 unless they were merged.
    """

    def _combine(self, inputs: CombinerInputs, settings: SearchSettings) -> Combination:
        return Combination(1.0, distance_softmax(inputs.neighbours, settings.temperature))


def distance_softmax(neighbours: Neighbours, temperature: float) -> Tensor:
    """c·exp(−d/τ) over its sum in each row, (rows, k), c being counts; missing neighbours have none of it."""
    scores = neighbours.distances / -temperature
    return torch.softmax(scores if neighbours.counts is None else scores + neighbours.counts.log(), dim=1)

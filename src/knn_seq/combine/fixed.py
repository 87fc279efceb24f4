from __future__ import annotations

import torch
from torch import Tensor

from knn_seq.combine.base import COMBINERS, Combiner
from knn_seq.neighbours import Neighbours


@COMBINERS.register("fixed")
class FixedCombiner(Combiner):
    """Vanilla kNN-MT: one temperature, p_kNN(y) ∝ Σ 1[y = v_i]·exp(−d_i/τ), and one interpolation weight λ."""

    def votes(self, neighbours: Neighbours) -> Tensor:
        """The softmax of −d/τ over each row."""
        votes = torch.softmax(neighbours.distances / -self.settings.temperature, dim=1)
        return votes if neighbours.whole else votes.masked_fill(neighbours.empty.unsqueeze(1), 0.0)

    def weights(self, neighbours: Neighbours) -> Tensor | float:
        """λ, the same for every row."""
        return self.settings.weight

from __future__ import annotations

from torch import Tensor

from knn_seq.combine.base import COMBINERS
from knn_seq.combine.fixed import FixedCombiner
from knn_seq.neighbours import Neighbours


@COMBINERS.register("distance")
class DistanceCombiner(FixedCombiner):
    """The nearer the nearest neighbour, the more its row counts: λ = weight · max(0, 1 − d₁/τ).

    With a weight of 1 this is what SK-MT does.  A step to which nothing is near is left to the model, so few keys do,
    and the temperature has to be some times a usual distance.
    """

    largest_temperature = 16.0

    def weights(self, neighbours: Neighbours) -> Tensor:
        """λ of each row, from the distance of its nearest neighbour."""
        nearness = 1 - neighbours.distances[:, 0] / self.settings.temperature
        return self.settings.weight * nearness.clamp(0.0, 1.0)

from __future__ import annotations

from knn_seq.combine.base import COMBINERS, Combination, Combiner, CombinerInputs
from knn_seq.combine.fixed import distance_softmax
from knn_seq.settings import SearchSettings


@COMBINERS.register("distance")
class DistanceCombiner(Combiner):
    """The nearer the nearest neighbour, the more its row counts: λ = weight · max(0, 1 − d₁/τ).

    With a weight of 1 this is what SK-MT does (Dai et al. 2023).  A step to which nothing is near is left to the model,
    so few keys do, and the temperature has to be some times a usual distance.
    """

    largest_temperature = 16.0

    def _combine(self, inputs: CombinerInputs, settings: SearchSettings) -> Combination:
        neighbours, temperature = inputs.neighbours, settings.temperature
        weights = (1 - neighbours.distances[:, 0] / temperature).clamp(0.0, 1.0)
        return Combination(weights, distance_softmax(neighbours, temperature))

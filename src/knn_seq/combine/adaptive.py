from __future__ import annotations

import torch
from torch import Tensor, nn

from knn_seq.combine.base import COMBINERS, Combination, CombinerInputs
from knn_seq.combine.trained import (
    FARTHEST,
    USUAL_TEMPERATURE,
    NetworkShape,
    TrainedCombiner,
    distinct_values,
    masked_softmax,
    one_hidden_layer,
    padded,
)

HIDDEN = 32
LEAST_SUM = 1e-30  # of a row without neighbours, which nothing is divided by


@COMBINERS.register("adaptive")
class AdaptiveCombiner(TrainedCombiner):
    """Adaptive kNN-MT (Zheng et al. 2021): a network decides how many of the nearest neighbours count.

    From a row's distances and from how many different values are among its nearest neighbours, the meta-k network gives
    a probability to each k ∈ {0, 1, 2, 4, … K}: p(y) = Σ p_meta(k)·p_kNN^k(y), where k = 0 is the model.  So λ is
    1 − p_meta(0), and p_kNN the mean of all others.  A k larger than what was found stands for all that was found.

    The paper's temperature is a hyperparameter, one for all rows.  Here it is one number that is trained with the
    network: p_meta fits the temperature it was trained with and no other, so it belongs into their file and is no
    option of a call.
    """

    network: MetaKNetwork

    def _network(self, shape: NetworkShape) -> MetaKNetwork:
        return MetaKNetwork(shape.k)

    def _forward(self, inputs: CombinerInputs) -> Combination:
        neighbours, distances = inputs.neighbours, self.distances(inputs.neighbours)
        choices, temperature = self.network(distances, distinct_values(neighbours))
        shares = masked_softmax(-distances / temperature, neighbours)
        # The softmax over the nearest few is that over all of them, divided by the sum of these few.
        k = self.network.choices.clamp(max=distances.shape[1])
        sums = shares.cumsum(dim=1)[:, k - 1].clamp(min=LEAST_SUM)
        within = (torch.arange(distances.shape[1], device=k.device) < k.unsqueeze(1)).to(shares.dtype)
        model, others = choices[:, 0], choices[:, 1:]
        weights = (others.logsumexp(dim=1) - model).sigmoid()
        return Combination(weights, shares * ((others.softmax(dim=1) / sums) @ within))


class MetaKNetwork(nn.Module):
    """How likely each choice of k is.

    Args:
        k: The most neighbours of a row; missing ones are infinitely far.
    """

    choices: Tensor  # of k, without 0, ascending

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        powers = [1 << n for n in range(k.bit_length()) if 1 << n < k]
        self.register_buffer("choices", torch.tensor([*powers, k]), persistent=False)
        self.meta = one_hidden_layer(2 * k, HIDDEN, len(self.choices) + 1)
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, distances: Tensor, distinct: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithms of p_meta before they are normalised, (rows, choices), k = 0 first, and the temperature.

        Args:
            distances: In units of a usual one, (rows, k).
            distinct: How many different values are among the nearest, (rows, k).
        """
        row = torch.cat((padded(distances, self.k, FARTHEST), padded(distinct / 8, self.k)), dim=1)
        return self.meta(row), USUAL_TEMPERATURE * self.log_temperature.exp()

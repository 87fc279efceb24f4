from __future__ import annotations

import torch
from torch import Tensor, nn

from knn_seq.combine.base import COMBINERS, Combination, CombinerInputs
from knn_seq.combine.trained import (
    FARTHEST,
    LEAST_LOG_PROB,
    USUAL_TEMPERATURE,
    NetworkShape,
    TrainedCombiner,
    masked_softmax,
    one_hidden_layer,
    padded,
)
from knn_seq.settings import SearchSettings

ROW_HIDDEN, NEIGHBOUR_HIDDEN = 64, 8
NEAREST = 0.01  # of the usual distance: the logarithm tells nothing nearer apart


@COMBINERS.register("learned")
class LearnedCombiner(TrainedCombiner):
    """λ and a temperature for each row, and a bonus for each neighbour, from what is known of both.

    A network of one hidden layer looks at a row's distances, at how many different values are among its nearest
    neighbours, at p_MT of these values and of the model's choice, and says λ and τ; a smaller one looks at each
    neighbour's p_MT, distance and rank, and says a bonus b: p_kNN(y) ∝ Σ 1[y = v_i]·exp(−d_i/τ + b_i).
    """

    best_log_probs = 1

    def _network(self, shape: NetworkShape) -> LearnedNetwork:
        return LearnedNetwork(shape.k)

    def begin_with(self, fixed: SearchSettings) -> None:
        """See `TrainedCombiner.begin_with`: λ and τ are those of `fixed` in every row, and no neighbour has a bonus."""
        share, temperature = fixed.weight, fixed.temperature / (self.shape.scale * USUAL_TEMPERATURE)
        bias = torch.tensor([share / (1 - share), temperature]).log()
        self.network.load_state_dict({**self.network.state_dict(), "row.2.bias": bias})

    def _forward(self, inputs: CombinerInputs) -> Combination:
        weights, scores = self.network(*self.features(inputs))
        return Combination(weights, masked_softmax(scores, inputs.neighbours))


class LearnedNetwork(nn.Module):
    """The two networks of `LearnedCombiner`.

    Args:
        k: The most neighbours of a row; missing ones are infinitely far and unlikely.
    """

    rank: Tensor

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        self.row = one_hidden_layer(3 * k + 1, ROW_HIDDEN, 2)
        self.neighbour = one_hidden_layer(4, NEIGHBOUR_HIDDEN, 1)
        self.register_buffer("rank", torch.arange(1, k + 1).log(), persistent=False)

    def forward(
        self, distances: Tensor, distinct: Tensor, value_log_probs: Tensor, best_log_probs: Tensor
    ) -> tuple[Tensor, Tensor]:
        """λ, (rows,), and the logarithm of each neighbour's share before it is normalised, (rows, k).

        Args:
            distances: In units of a usual one, (rows, k).
            distinct: How many different values are among the nearest, (rows, k).
            value_log_probs: log p_MT of each value, (rows, k).
            best_log_probs: log p_MT of the model's choice, (rows, 1).
        """
        k = distances.shape[1]
        nearness, likely = (distances + NEAREST).log() / 2, value_log_probs / 4
        each = torch.stack((likely, distances.clamp(max=4.0), nearness, self.rank[:k].expand_as(distances)), dim=2)
        row = torch.cat(
            (
                padded(nearness, self.k, _MISSING_NEARNESS),
                padded(distinct / 8, self.k),
                padded(likely, self.k, LEAST_LOG_PROB / 4),
                best_log_probs / 4,
            ),
            dim=1,
        )
        weight, log_temperature = self.row(row).unbind(dim=1)
        temperature = (USUAL_TEMPERATURE * log_temperature.exp()).unsqueeze(1)
        return weight.sigmoid(), self.neighbour(each).squeeze(2) - distances / temperature


_MISSING_NEARNESS = torch.tensor(FARTHEST + NEAREST).log().item() / 2

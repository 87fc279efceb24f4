from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from knn_seq.combine.base import COMBINERS, Combination, CombinerInputs
from knn_seq.combine.learned_step import (
    DISTINCT_UNIT,
    FAR,
    LOG_PROB_UNIT,
    MISSING_NEARNESS,
    NEAREST,
    LearnedWeights,
    combine_step,
)
from knn_seq.combine.trained import (
    LEAST_LOG_PROB,
    USUAL_TEMPERATURE,
    NetworkShape,
    TrainedCombiner,
    masked_softmax,
    normalised,
    one_hidden_layer,
    padded,
)
from knn_seq.settings import SearchSettings

ROW_HIDDEN, NEIGHBOUR_HIDDEN = 64, 8
QUERY_DROPOUT = 0.5  # without it, a query says too much of the sentences that it was trained on


@COMBINERS.register("learned")
class LearnedCombiner(TrainedCombiner):
    """λ and a temperature for each row, and a bonus for each neighbour, from what is known of both.

    A network of one hidden layer looks at a row's distances, at how many different values are among its nearest
    neighbours, at p_MT of these values and of the model's choice, and at the query, which tells text of the datastore's
    domain from other text.  It says λ and τ; a smaller one looks at each neighbour's p_MT, distance and rank, and says
    a bonus b: p_kNN(y) ∝ Σ 1[y = v_i]·exp(−d_i/τ + b_i).
    """

    best_log_probs = 1

    def __init__(self, shape: NetworkShape, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(shape, options)
        self._folded: dict[int, LearnedWeights] = {}  # for so many neighbours
        self._folded_versions: list[tuple[int, int]] = []  # of the parameters

    def _network(self, shape: NetworkShape) -> LearnedNetwork:
        return LearnedNetwork(shape.k, shape.dimension)

    def begin_with(self, fixed: SearchSettings) -> None:
        """See `TrainedCombiner.begin_with`: λ and τ are those of `fixed` in every row, and no neighbour has a bonus."""
        share, temperature = fixed.weight, fixed.temperature / (self.shape.scale * USUAL_TEMPERATURE)
        bias = torch.tensor([share / (1 - share), temperature]).log()
        self.network.load_state_dict({**self.network.state_dict(), "row.2.bias": bias})

    def _forward(self, inputs: CombinerInputs) -> Combination:
        if inputs.neighbours.ids.device.type == "cpu" and not torch.is_grad_enabled():
            return combine_step(inputs, self.shape, self._weights(inputs.neighbours.ids.shape[1]))
        weights, scores = self.network(*self.features(inputs), normalised(inputs.queries))
        return Combination(weights, masked_softmax(scores, inputs.neighbours))

    def _weights(self, k: int) -> LearnedWeights:
        """The network's weights as they are now: it may be trained further between two steps."""
        versions = [(parameter._version, parameter.data_ptr()) for parameter in self.parameters]
        if versions != self._folded_versions:
            self._folded, self._folded_versions = {}, versions
        if k not in self._folded:
            self._folded[k] = LearnedWeights.of(self.network.state_dict(), self.shape.k, k)
        return self._folded[k]


class LearnedNetwork(nn.Module):
    """The two networks of `LearnedCombiner`.

    Args:
        k: The most neighbours of a row; missing ones are infinitely far and unlikely.
        dimension: Of queries.
    """

    rank: Tensor

    def __init__(self, k: int, dimension: int) -> None:
        super().__init__()
        self.k = k
        self.row = one_hidden_layer(3 * k + 1 + dimension, ROW_HIDDEN, 2)
        self.dropout = nn.Dropout(QUERY_DROPOUT)
        self.neighbour = one_hidden_layer(4, NEIGHBOUR_HIDDEN, 1)
        self.register_buffer("rank", torch.arange(1, k + 1).log(), persistent=False)

    def forward(
        self, distances: Tensor, distinct: Tensor, value_log_probs: Tensor, best_log_probs: Tensor, queries: Tensor
    ) -> tuple[Tensor, Tensor]:
        """λ, (rows,), and the logarithm of each neighbour's share before it is normalised, (rows, k).

        Args:
            distances: In units of a usual one, (rows, k).
            distinct: How many different values are among the nearest, (rows, k).
            value_log_probs: log p_MT of each value, (rows, k).
            best_log_probs: log p_MT of the model's choice, (rows, 1).
            queries: Normalised, (rows, dimension).
        """
        k = distances.shape[1]
        nearness, likely = (distances + NEAREST).log() / 2, value_log_probs / LOG_PROB_UNIT
        each = torch.stack((likely, distances.clamp(max=FAR), nearness, self.rank[:k].expand_as(distances)), dim=2)
        row = torch.cat(
            (
                padded(nearness, self.k, MISSING_NEARNESS),
                padded(distinct / DISTINCT_UNIT, self.k),
                padded(likely, self.k, LEAST_LOG_PROB / LOG_PROB_UNIT),
                best_log_probs / LOG_PROB_UNIT,
                self.dropout(queries),
            ),
            dim=1,
        )
        weight, log_temperature = self.row(row).unbind(dim=1)
        temperature = (USUAL_TEMPERATURE * log_temperature.exp()).unsqueeze(1)
        return weight.sigmoid(), self.neighbour(each).squeeze(2) - distances / temperature

from __future__ import annotations

import math

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
from knn_seq.index import Neighbours

ROW_HIDDEN, NEIGHBOUR_HIDDEN = 32, 4
BEST_TOKENS = 8
NOISE_DECAY = 5.0  # the share of tokens with noise falls from 1 to exp(−5), as in the paper's 5,000 updates
NOISE = 1e-3  # the squared length of the noise of a key, in units of a usual distance


@COMBINERS.register("robust")
class RobustCombiner(TrainedCombiner):
    """Robust kNN-MT (Jiang et al. 2022): the model's confidence in the neighbours' values, and noise in training.

    Distribution calibration: p_kNN(y) ∝ Σ 1[y = v_i]·exp(−d_i/T + c_i), with T from the row's distances and how many
    different values are among its nearest neighbours, and the confidence c_i from p_MT of the neighbour's value.
    Weight prediction: λ = exp(s_kNN) / (exp(s_kNN) + exp(s_NMT)), with s_kNN from what T is from, and s_NMT from p_MT
    of all values and of the model's eight best tokens.

    The paper's c_i also looks at p_MT of the value at the neighbour's own key.  It would take a product with the
    vocabulary for each neighbour of each step, so it is left out.
    """

    best_log_probs = BEST_TOKENS

    def _network(self, shape: NetworkShape) -> RobustNetwork:
        return RobustNetwork(shape.k)

    def _forward(self, inputs: CombinerInputs) -> Combination:
        weights, scores = self.network(*self.features(inputs))
        return Combination(weights, masked_softmax(scores, inputs.neighbours))

    def perturbed(
        self,
        inputs: CombinerInputs,
        targets: Tensor,
        target_log_probs: Tensor,
        progress: float,
        generator: torch.Generator,
    ) -> CombinerInputs:
        """With noise in some tokens' keys, and a pseudo neighbour for some whose reference no neighbour has.

        Noise ε moves a key to the squared distance d + 2·(k − q)·ε + ‖ε‖², where (k − q)·ε is normally distributed with
        the variance d·σ²: no key has to be read.  A pseudo neighbour is the query itself with such noise, and takes the
        place of the farthest neighbour.
        """
        neighbours = inputs.neighbours
        rate, shape = math.exp(-NOISE_DECAY * progress), neighbours.distances.shape
        noisy, completed = torch.rand((2, shape[0], 1), generator=generator) < rate
        lacking = ~(neighbours.found & (neighbours.values == targets.unsqueeze(1))).any(dim=1) & ~neighbours.empty
        completed = completed & lacking.unsqueeze(1)

        squared_noise = NOISE * self.shape.scale
        near = (neighbours.distances - self.shape.offset).clamp(min=0.0)
        spread = 2 * (near * squared_noise / self.shape.dimension).sqrt()
        moved = near + spread * torch.randn(shape, generator=generator) + squared_noise
        moved = torch.where(noisy & neighbours.found, moved.clamp(min=0.0), near) + self.shape.offset

        def with_pseudo(columns: Tensor, pseudo: Tensor | float) -> Tensor:
            first = columns.new_empty(len(columns)).copy_(torch.as_tensor(pseudo)).unsqueeze(1)
            return torch.where(completed, torch.cat((first, columns[:, :-1]), dim=1), columns)

        distances, order = with_pseudo(moved, squared_noise + self.shape.offset).sort(dim=1, stable=True)
        values = with_pseudo(neighbours.values, targets).gather(1, order)
        ids = with_pseudo(neighbours.ids, 0).gather(1, order)  # any: it only says that something was found
        value_log_probs = with_pseudo(inputs.value_log_probs, target_log_probs).gather(1, order)
        changed = Neighbours(distances, values, ids, neighbours.complete)
        return CombinerInputs(inputs.queries, changed, value_log_probs, inputs.best_log_probs)


class RobustNetwork(nn.Module):
    """The networks of `RobustCombiner`: distribution calibration and weight prediction.

    Args:
        k: The most neighbours of a row; missing ones are infinitely far and unlikely.
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        self.row = one_hidden_layer(2 * k, ROW_HIDDEN, 2, nn.Tanh())  # s_kNN and log T
        self.confidence = one_hidden_layer(1, NEIGHBOUR_HIDDEN, 1, nn.Tanh())  # c
        self.model = nn.Linear(k + BEST_TOKENS, 1)  # s_NMT

    def forward(
        self, distances: Tensor, distinct: Tensor, value_log_probs: Tensor, best_log_probs: Tensor
    ) -> tuple[Tensor, Tensor]:
        """λ, (rows,), and the logarithm of each neighbour's share before it is normalised, (rows, k).

        Args:
            distances: In units of a usual one, (rows, k).
            distinct: How many different values are among the nearest, (rows, k).
            value_log_probs: log p_MT of each value, (rows, k).
            best_log_probs: log p_MT of the model's best tokens, (rows, 8).
        """
        row = torch.cat((padded(distances, self.k, FARTHEST), padded(distinct / 8, self.k)), dim=1)
        of_neighbours, log_temperature = self.row(row).unbind(dim=1)
        likely = torch.cat((padded(value_log_probs, self.k, LEAST_LOG_PROB), best_log_probs), dim=1) / 4
        of_model = self.model(likely).squeeze(1)
        confidence = self.confidence(value_log_probs.unsqueeze(2) / 4).squeeze(2)
        temperature = (USUAL_TEMPERATURE * log_temperature.exp()).unsqueeze(1)
        return (of_neighbours - of_model).sigmoid(), confidence - distances / temperature

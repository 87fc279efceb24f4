"""The network of the learned combiner for the few rows of a step on a CPU, where calling torch takes longest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from knn_seq.combine.base import Combination, CombinerInputs
from knn_seq.combine.trained import FARTHEST, LEAST_LOG_PROB, USUAL_TEMPERATURE, NetworkShape, normalised

NEAREST = 0.01  # of the usual distance: the logarithm tells nothing nearer apart
FAR = 4.0  # times the usual distance: to a neighbour's bonus, what is farther is equally far
MISSING_NEARNESS = float(np.log(FARTHEST + NEAREST)) / 2
DISTINCT_UNIT, LOG_PROB_UNIT = 8, 4  # what the inputs are divided by


class LearnedWeights(NamedTuple):
    """The weights of a `LearnedNetwork` as they multiply plain features of k neighbours."""

    row: Tensor  # (3 k + 1, hidden): of log distances, distinct values, log p_MT of the values and of the best token
    query: Tensor  # (dimension, hidden): of the normalised query
    row_bias: Tensor  # (hidden,)
    answer: Tensor  # (hidden, 2): of λ before the sigmoid, and of log τ
    answer_bias: Tensor  # (2,)
    neighbour: Tensor  # (3, hidden): of log p_MT, distance, log distance
    neighbour_bias: Tensor  # (k, hidden): with what the rank adds
    bonus: Tensor  # (hidden,): its bias is the same for all neighbours of a row and changes nothing

    @classmethod
    def of(cls, weights: dict[str, Tensor], most: int, k: int) -> LearnedWeights:
        """What is divided before the network is divided in its weights, and missing neighbours are in its biases.

        Args:
            weights: The network's, by name.
            most: The most neighbours of a row.
            k: How many there are.
        """
        row, row_bias = weights["row.0.weight"].double(), weights["row.0.bias"].double()
        near, distinct, likely = (row[:, start : start + most] for start in range(0, 3 * most, most))
        row_bias = (
            row_bias + MISSING_NEARNESS * near[:, k:].sum(1) + LEAST_LOG_PROB / LOG_PROB_UNIT * likely[:, k:].sum(1)
        )
        distinct = torch.cat((distinct[:, : k - 1], distinct[:, k - 1 :].sum(1, keepdim=True)), dim=1)
        best, query = row[:, 3 * most : 3 * most + 1], row[:, 3 * most + 1 :]
        parts = (near[:, :k] / 2, distinct / DISTINCT_UNIT, likely[:, :k] / LOG_PROB_UNIT, best / LOG_PROB_UNIT)
        of_likely, of_distance, of_nearness, of_rank = weights["neighbour.0.weight"].double().unbind(1)
        rank = torch.arange(1, k + 1, dtype=torch.float64).log().unsqueeze(1)
        made = (
            torch.cat(parts, dim=1).t(),
            query.t(),
            row_bias,
            weights["row.2.weight"].t(),
            weights["row.2.bias"],
            torch.stack((of_likely / LOG_PROB_UNIT, of_distance, of_nearness / 2)),
            weights["neighbour.0.bias"].double() + rank * of_rank,
            weights["neighbour.2.weight"][0],
        )
        return cls(*(part.float().contiguous() for part in made))


@torch.no_grad()
def combine_step(inputs: CombinerInputs, shape: NetworkShape, weights: LearnedWeights) -> Combination:
    """What `LearnedCombiner` makes of inputs on the CPU, in a third of the calls.

    Args:
        inputs: See there.
        shape: What the network is made for.
        weights: Those for so many neighbours.
    """
    neighbours = inputs.neighbours
    rows, k = neighbours.values.shape
    found = None if neighbours.complete else neighbours.ids.numpy() >= 0
    distances = neighbours.distances.numpy() - np.float32(shape.offset)
    distances /= np.float32(shape.scale)
    np.maximum(np.minimum(distances, FARTHEST, out=distances), 0.0, out=distances)
    features = np.empty((rows, 3 * k + 1), np.float32)
    nearness, distinct, likely = (features[:, start : start + k] for start in range(0, 3 * k, k))
    np.log(np.add(distances, NEAREST, out=nearness), out=nearness)
    new = neighbours.first_places.numpy() == np.arange(k)
    np.add.accumulate(new if found is None else new & found, axis=1, out=distinct, dtype=np.float32)
    np.maximum(inputs.value_log_probs.numpy(), LEAST_LOG_PROB, out=likely)
    if found is not None:
        likely[~found] = LEAST_LOG_PROB
    np.maximum(inputs.best_log_probs.numpy(), LEAST_LOG_PROB, out=features[:, 3 * k :])
    each = np.empty((rows, k, 3), np.float32)
    each[:, :, 0], each[:, :, 2] = likely, nearness
    np.minimum(distances, FAR, out=each[:, :, 1])

    hidden = torch.addmm(weights.row_bias, torch.from_numpy(features), weights.row)
    hidden.addmm_(normalised(inputs.queries), weights.query).relu_()
    answers = torch.addmm(weights.answer_bias, hidden, weights.answer)
    coldness = np.exp(-answers[:, 1:].numpy())
    coldness /= USUAL_TEMPERATURE
    bonuses = torch.mm(torch.from_numpy(each).view(rows * k, 3), weights.neighbour).view(rows, k, -1)
    scores = torch.mv(bonuses.add_(weights.neighbour_bias).relu_().view(rows * k, -1), weights.bonus).view(rows, k)
    scores.sub_(torch.from_numpy(np.multiply(distances, coldness, out=distances)))
    if neighbours.counts is not None:
        scores += neighbours.counts.log()
    if found is None:
        return Combination(answers[:, 0].sigmoid(), torch.softmax(scores, dim=1))
    missing = torch.from_numpy(~found)
    shares = torch.softmax(scores.masked_fill_(missing, -torch.inf), dim=1).masked_fill_(missing, 0.0)
    return Combination(answers[:, 0].sigmoid(), shares)

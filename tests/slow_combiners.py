"""Trained combiners as their formulas say: one row at a time, one neighbour after the other, in float64."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

FARTHEST, LEAST, USUAL = 8.0, -12.0, 0.3
Array = NDArray[np.float64]


class Row(NamedTuple):
    """What is known of one query, with real neighbours only."""

    query: Array  # (dimension,)
    distances: list[float]  # in units of a usual one
    values: list[int]
    keys: Array  # (found, dimension)
    log_probs: Array  # (vocabulary,)


def slow_row(combiner, queries, neighbours, log_probs, keys, row) -> Row:
    """One row of the inputs, without the places that hold no neighbour."""
    shape = combiner.shape
    places = [i for i, entry in enumerate(neighbours.ids[row].tolist()) if entry >= 0]
    distances = [(neighbours.distances[row, i].item() - shape.offset) / shape.scale for i in places]
    return Row(
        queries[row].double().numpy(),
        [min(max(distance, 0.0), FARTHEST) for distance in distances],
        [neighbours.values[row, i].item() for i in places],
        np.array([keys[neighbours.ids[row, i].item()] for i in places], np.float64).reshape(
            len(places), queries.shape[1]
        ),
        log_probs[row].double().numpy(),
    )


def slow_mixture(name, combiner, row: Row, factor: float) -> Array:
    """p of the vocabulary."""
    p_mt = np.exp(row.log_probs)
    if not row.values:
        return p_mt
    weights = {name: tensor.double().numpy() for name, tensor in combiner.network.state_dict().items()}
    own, shares = SLOW[name](weights, combiner.shape.k, row)
    own *= factor
    mixture = (1 - own) * p_mt
    for share, value in zip(shares, row.values, strict=True):
        mixture[value] += own * share
    return mixture


def _learned(weights, k, row):
    nearness = [math.log(d + 0.01) / 2 for d in row.distances]
    likely = [max(row.log_probs[value], LEAST) / 4 for value in row.values]
    inputs = [
        *_filled(nearness, k, math.log(FARTHEST + 0.01) / 2),
        *[count / 8 for count in _distinct(row.values, k)],
        *_filled(likely, k, LEAST / 4),
        max(row.log_probs.max(), LEAST) / 4,
        *_normalised(row.query),
    ]
    weight, log_temperature = _layers(weights, "row", inputs, _relu)
    scores = []
    for i, distance in enumerate(row.distances):
        each = [likely[i], min(distance, 4.0), nearness[i], math.log(i + 1)]
        scores.append(_layers(weights, "neighbour", each, _relu)[0] - distance / (USUAL * math.exp(log_temperature)))
    return _sigmoid(weight), _softmax(scores)


def _adaptive(weights, k, row):
    inputs = [*_filled(row.distances, k, FARTHEST), *[count / 8 for count in _distinct(row.values, k)]]
    choices = [0]
    while (further := max(2 * choices[-1], 1)) < k:
        choices.append(further)
    choices.append(k)
    meta = _softmax(_layers(weights, "meta", inputs, _relu))
    temperature = USUAL * math.exp(weights["log_temperature"])
    shares = np.zeros(len(row.values))
    for probability, choice in zip(meta[1:], choices[1:], strict=True):
        nearest = _softmax([-distance / temperature for distance in row.distances[:choice]])
        shares[: len(nearest)] += probability * np.array(nearest)
    return 1 - meta[0], shares / (1 - meta[0])


def _robust(weights, k, row):
    inputs = [*_filled(row.distances, k, FARTHEST), *[count / 8 for count in _distinct(row.values, k)]]
    of_neighbours, log_temperature = _layers(weights, "row", inputs, np.tanh)
    likely = [max(row.log_probs[value], LEAST) for value in row.values]
    best = [max(value, LEAST) for value in sorted(row.log_probs, reverse=True)[:8]]
    of_model = weights["model.weight"] @ (np.array([*_filled(likely, k, LEAST), *best]) / 4) + weights["model.bias"]
    confidences = [_layers(weights, "confidence", [each / 4], np.tanh)[0] for each in likely]
    scores = [c - d / (USUAL * math.exp(log_temperature)) for c, d in zip(confidences, row.distances, strict=True)]
    s_knn, s_nmt = math.exp(of_neighbours), math.exp(of_model[0])
    return s_knn / (s_knn + s_nmt), _softmax(scores)


def _kster(weights, k, row):
    features = np.concatenate([_normalised(row.query), _normalised(row.keys.mean(axis=0))])
    bandwidth = USUAL * math.exp((weights["log_bandwidth.weight"] @ features + weights["log_bandwidth.bias"])[0])
    shares = _softmax([-math.sqrt(distance) / bandwidth for distance in row.distances])
    weighted = sum(share * key for share, key in zip(shares, row.keys, strict=True))
    mixing = _layers(weights, "mixing", np.concatenate([_normalised(row.query), _normalised(weighted)]), _relu)
    return _sigmoid(mixing[0]), shares


SLOW = {"learned": _learned, "adaptive": _adaptive, "robust": _robust, "kster": _kster}


def _layers(weights, name, inputs, activation):
    hidden = activation(weights[f"{name}.0.weight"] @ np.asarray(inputs) + weights[f"{name}.0.bias"])
    return weights[f"{name}.2.weight"] @ hidden + weights[f"{name}.2.bias"]


def _relu(values):
    return np.maximum(values, 0.0)


def _sigmoid(value):
    return 1 / (1 + math.exp(-value))


def _softmax(scores):
    parts = [math.exp(score - max(scores)) for score in scores]
    return [part / sum(parts) for part in parts]


def _normalised(vector):
    return (vector - vector.mean()) / math.sqrt(vector.var() + 1e-5)


def _filled(values, k, missing):
    return [*values, *[missing] * (k - len(values))]


def _distinct(values, k):
    return [len(set(values[: i + 1])) for i in range(k)]


def randomise(network: torch.nn.Module, seed: int = 0) -> None:
    """Weights that make something of every input: those that training begins with do not.

    Larger ones make temperatures so low that float32 cannot tell 1e-5 of a probability.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    network.eval().requires_grad_(False)

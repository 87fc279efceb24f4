"""The mixture p(y) = λ·p_kNN(y) + (1−λ)·p_MT(y), as logarithms, without an array over the vocabulary for p_kNN."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from knn_seq.combine.base import Combination
from knn_seq.index import Neighbours
from knn_seq.models import StepChanges


def interpolate(log_probs: Tensor, neighbour_probs: Tensor, weights: Tensor | float) -> Tensor:
    """log(λ·p_kNN + (1−λ)·p_MT); all shapes broadcast.

    Args:
        log_probs: log p_MT of some tokens.
        neighbour_probs: p_kNN of the same.
        weights: λ, less than 1.
    """
    return raised(log_probs, neighbour_probs, weights) + _log_complement(weights)


def raised(log_probs: Tensor, neighbour_probs: Tensor, weights: Tensor | float) -> Tensor:
    """The same before everything shifts by log(1−λ): no less than log p_MT."""
    return torch.logaddexp(log_probs, (weights / (1 - weights) * neighbour_probs).log())


def mix_retrieved(value_log_probs: Tensor, neighbours: Neighbours, combination: Combination) -> StepChanges:
    """The mixture as what changes: only the retrieved tokens are computed, all others shift by log(1−λ).

    A row without neighbours is log p_MT as it was.

    Args:
        value_log_probs: log p_MT of each neighbour's value, (rows, k), float32.
        neighbours: The neighbours of each row.
        combination: What the combiner made of them.
    """
    weights, shares = combination.weights, combination.probabilities
    weights = weights.unsqueeze(1) if isinstance(weights, Tensor) else shares.new_full((len(shares), 1), weights)
    places = neighbours.first_places
    sums = torch.zeros_like(shares).scatter_add_(1, places, shares).gather(1, places)
    return StepChanges(torch.log1p(-weights), neighbours.values, raised(value_log_probs, sums, weights))


def mix_vocabulary(log_probs: Tensor, neighbours: Neighbours, combination: Combination) -> Tensor:
    """log p of every token, (rows, vocabulary).

    Args:
        log_probs: log p_MT, (rows, vocabulary), float32; it is written over.
        neighbours: The neighbours of each row.
        combination: What the combiner made of them.
    """
    changes = mix_retrieved(log_probs.gather(1, neighbours.values), neighbours, combination)
    return changes.apply(log_probs)


def mix_tokens(tokens: Tensor, log_probs: Tensor, neighbours: Neighbours, combination: Combination) -> Tensor:
    """log p of one token in each row, (rows,).

    Args:
        tokens: (rows,)
        log_probs: log p_MT of these, (rows,).
        neighbours: The neighbours of each row.
        combination: What the combiner made of them.
    """
    probs = neighbour_probability(tokens, neighbours, combination).to(log_probs.dtype)
    return interpolate(log_probs, probs, combination.weights)


def neighbour_probability(tokens: Tensor, neighbours: Neighbours, combination: Combination) -> Tensor:
    """p_kNN of one token in each row, (rows,)."""
    return (combination.probabilities * (neighbours.values == tokens.unsqueeze(1))).sum(dim=1)


def _log_complement(weights: Tensor | float) -> Tensor | float:
    """log(1−λ)"""
    return torch.log1p(-weights) if isinstance(weights, Tensor) else math.log1p(-weights)

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
    return torch.logaddexp(log_probs + _log_complement(weights), (weights * neighbour_probs).log())


def mix_retrieved(log_probs: Tensor, neighbours: Neighbours, combination: Combination) -> StepChanges:
    """The mixture as what changes: only the retrieved tokens are computed, all others shift by log(1−λ).

    A row without neighbours is log p_MT as it was.

    Args:
        log_probs: log p_MT, (rows, vocabulary), float32; it is written over for a moment.
        neighbours: The neighbours of each row.
        combination: What the combiner made of them.
    """
    values, weights = neighbours.values, combination.weights
    weights = weights.unsqueeze(1) if isinstance(weights, Tensor) else log_probs.new_full((len(values), 1), weights)
    retrieved = log_probs.gather(1, values)
    # Probabilities of the same token meet in its own place, which is written anew in the end: nothing is sorted.
    sums = log_probs.scatter_(1, values, 0.0).scatter_add_(1, values, combination.probabilities).gather(1, values)
    log_probs.scatter_(1, values, retrieved)
    return StepChanges(torch.log1p(-weights), values, interpolate(retrieved, sums, weights))


def mix_vocabulary(log_probs: Tensor, neighbours: Neighbours, combination: Combination) -> Tensor:
    """log p of every token, (rows, vocabulary).

    Args:
        log_probs: log p_MT, (rows, vocabulary), float32; it is written over.
        neighbours: The neighbours of each row.
        combination: What the combiner made of them.
    """
    shift, tokens, mixed = mix_retrieved(log_probs, neighbours, combination)
    return log_probs.add_(shift).scatter_(1, tokens, mixed)


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

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from knn_seq.neighbours import Neighbours
from knn_seq.registry import Registry
from knn_seq.settings import SearchSettings

LARGEST_WEIGHT = 1 - 2**-24  # the float32 below 1


class Combiner(ABC):
    """How neighbours vote for the next token, and how much their vote counts against the model's.

    The mixture itself, p(y) = λ·p_kNN(y) + (1−λ)·p_MT(y), is the same for all; a combiner says what p_kNN and λ are.
    The settings' weight bears on λ only.
    """

    largest_temperature: ClassVar[float] = 4.0  # times the median distance, that is worth trying

    def __init__(self, settings: SearchSettings) -> None:
        self.settings = settings

    @abstractmethod
    def votes(self, neighbours: Neighbours) -> Tensor:
        """The share of p_kNN that each neighbour brings to its value, (rows, k); a row sums to 1, or to 0 if empty."""

    @abstractmethod
    def weights(self, neighbours: Neighbours) -> Tensor | float:
        """λ of each row that has neighbours, (rows,), or one for all of them."""

    def mixture_weights(self, neighbours: Neighbours) -> Tensor:
        """λ as it enters the mixture, (rows,): 0 without neighbours, and always less than 1."""
        weight = self._mixture_weight(neighbours)
        return weight if isinstance(weight, Tensor) else neighbours.distances.new_full((len(neighbours.ids),), weight)

    def _mixture_weight(self, neighbours: Neighbours) -> Tensor | float:
        """The same, or one for all rows.

        What the neighbours don't vote for must stay possible: their tokens may all be banned later in the search.
        """
        weight = self.weights(neighbours)
        weight = weight.clamp(max=LARGEST_WEIGHT) if isinstance(weight, Tensor) else min(weight, LARGEST_WEIGHT)
        if neighbours.whole:
            return weight
        return torch.where(neighbours.empty, 0.0, weight)

    def combine(self, log_probs: Tensor, neighbours: Neighbours) -> Tensor:
        """The logarithm of the mixture.

        Only the retrieved tokens are computed; all others shift by log(1−λ).

        Args:
            log_probs: log p_MT, (rows, vocabulary), float32; it is written over.
            neighbours: The neighbours of each row.

        Returns:
            log p, (rows, vocabulary); a row without neighbours is log p_MT as it was.
        """
        weight, values = self._mixture_weight(neighbours), neighbours.values
        if isinstance(weight, Tensor):
            weight = weight.unsqueeze(1)
            log_probs.add_(torch.log1p(-weight))
        else:
            log_probs.add_(math.log1p(-weight))
        retrieved = log_probs.gather(1, values)
        # Votes for the same token meet in its own place, which is written anew in the end: nothing has to be sorted.
        votes = self.votes(neighbours).mul(weight)
        shares = log_probs.scatter_(1, values, 0.0).scatter_add_(1, values, votes).gather(1, values)
        return log_probs.scatter_(1, values, torch.logaddexp(retrieved, shares.log_()))


COMBINERS: Registry[Combiner] = Registry("combine")

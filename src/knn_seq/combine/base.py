from __future__ import annotations

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
    def weights(self, neighbours: Neighbours) -> Tensor:
        """λ of each row that has neighbours, (rows,)."""

    def mixture_weights(self, neighbours: Neighbours) -> Tensor:
        """λ as it enters the mixture, (rows,): 0 without neighbours, and always less than 1.

        What the neighbours don't vote for must stay possible: their tokens may all be banned later in the search.
        """
        return self.weights(neighbours).clamp(max=LARGEST_WEIGHT).masked_fill(neighbours.empty, 0.0)

    def combine(self, log_probs: Tensor, neighbours: Neighbours) -> Tensor:
        """The logarithm of the mixture.

        Only the retrieved tokens are computed; all others shift by log(1−λ).

        Args:
            log_probs: log p_MT, (rows, vocabulary), float32; it is written over.
            neighbours: The neighbours of each row.

        Returns:
            log p, (rows, vocabulary); a row without neighbours is log p_MT as it was.
        """
        weight, values = self.mixture_weights(neighbours).unsqueeze(1), neighbours.values
        rest = torch.log1p(-weight)
        retrieved = log_probs.gather(1, values) + rest
        # Votes for the same token meet in its own place, which is written anew in the end: nothing has to be sorted.
        shares = log_probs.scatter_(1, values, 0.0).scatter_add_(1, values, self.votes(neighbours)).gather(1, values)
        mixed = torch.logaddexp(retrieved, torch.log(weight * shares))
        return log_probs.add_(rest).scatter_(1, values, mixed)


COMBINERS: Registry[Combiner] = Registry("combine")

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from knn_seq.index import Neighbours
from knn_seq.registry import Option, Registry, check_options
from knn_seq.settings import SearchSettings

LARGEST_WEIGHT = 1 - 2**-24  # the float32 below 1


@dataclass(frozen=True)
class CombinerInputs:
    """All that a combiner may look at, a row a query."""

    queries: Tensor  # (rows, dimension)
    neighbours: Neighbours  # (rows, k)
    value_log_probs: Tensor  # (rows, k): log p_MT of each neighbour's value
    best_log_probs: Tensor  # (rows, n): the largest log p_MT, largest first; n is the combiner's `best_log_probs`

    def to(self, device: torch.device | str) -> CombinerInputs:
        """The same on another device."""
        queries, values, best = (part.to(device) for part in (self.queries, self.value_log_probs, self.best_log_probs))
        return CombinerInputs(queries, self.neighbours.to(device), values, best)

    def rows(self, index: Tensor | slice) -> CombinerInputs:
        """Those of some rows."""
        return CombinerInputs(
            self.queries[index], self.neighbours.rows(index), self.value_log_probs[index], self.best_log_probs[index]
        )

    def nearest(self, k: int) -> CombinerInputs:
        """With the first k neighbours of each row."""
        return CombinerInputs(
            self.queries, self.neighbours.nearest(k), self.value_log_probs[:, :k], self.best_log_probs
        )


class Combination(NamedTuple):
    """What a combiner makes of its inputs."""

    weights: Tensor | float  # λ of each row, (rows,), or one for all of them; always less than 1
    probabilities: Tensor  # (rows, k): the part of p_kNN that each neighbour gives to its value; they sum to 1, or to 0

    def row_weights(self) -> Tensor:
        """λ of each row, (rows,)."""
        if isinstance(self.weights, Tensor):
            return self.weights
        return self.probabilities.new_full((len(self.probabilities),), self.weights)


class Combiner(ABC):
    """Decides how probable neighbours make each token, and how much that counts against the model.

    The mixture, p(y) = λ·p_kNN(y) + (1−λ)·p_MT(y), is the same for all combiners (see `mixture.py`); a combiner says
    what p_kNN and λ are.  It is opened once and asked at every step, with the settings of the call.

    Args:
        options: Values of those that `options` declares.
    """

    options: ClassVar[Mapping[str, Option]] = {}
    best_log_probs: ClassVar[int] = 0  # how many of the model's largest log-probabilities it looks at
    largest_temperature: ClassVar[float | None] = 4.0  # times the median distance, worth trying; None: it has its own

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        defaults = {name: option.default for name, option in self.options.items()}
        owner = f"The combiner {type(self).__name__}"
        self.option_values = {**defaults, **check_options(owner, self.options, options or {})}

    @property
    def largest_k(self) -> int | None:
        """The most neighbours that it can weigh; None: any number."""
        return None

    @classmethod
    def open(cls, store: Any, model: Any, settings: SearchSettings) -> Combiner:
        """The combiner for what is searched and the model that asks; one that keeps a file in the datastore reads it.

        Args:
            store: A `DatastoreFolder` or a `TranslationMemory`.
            model: The model.
            settings: With which retriever and index it works, and the values of its own options.
        """
        return cls(settings.combiner_options)

    def renewed(self, store: Any) -> Combiner:
        """The combiner for a later generation of the datastore that it was opened for; this one stays as it is."""
        return self

    def combine(self, inputs: CombinerInputs, settings: SearchSettings) -> Combination:
        """λ and p_kNN of each row, as they enter the mixture: λ is 0 without neighbours, and always less than 1.

        The settings' interpolation weight is a factor of λ and bears on nothing else.

        What neighbours don't propose must stay possible: their tokens may all be banned later in the search.
        """
        weights, probabilities = self._combine(inputs, settings)
        weights = weights * settings.weight
        weights = weights.clamp(max=LARGEST_WEIGHT) if isinstance(weights, Tensor) else min(weights, LARGEST_WEIGHT)
        if inputs.neighbours.complete:
            return Combination(weights, probabilities)
        empty = inputs.neighbours.empty
        return Combination(torch.where(empty, 0.0, weights), probabilities.masked_fill(empty.unsqueeze(1), 0.0))

    @abstractmethod
    def _combine(self, inputs: CombinerInputs, settings: SearchSettings) -> Combination:
        """λ for an interpolation weight of 1, and p_kNN; rows without neighbours may hold anything."""


COMBINERS: Registry[Combiner] = Registry(Combiner, "combine", "combiner")  # type: ignore[type-abstract]


def has_own_temperature(combiner: str) -> bool:
    """Whether the combiner of that name has a temperature of its own, and none is set."""
    return COMBINERS.get(combiner).largest_temperature is None

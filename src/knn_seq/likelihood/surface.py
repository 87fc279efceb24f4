from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from knn_seq.combine import COMBINERS, Combiner, interpolate, neighbour_probability
from knn_seq.index import Neighbours
from knn_seq.likelihood.predictions import Predictions
from knn_seq.settings import SearchSettings

SMALLEST_TEMPERATURE = 2.0**-5  # times the median distance
BLOCK = 1 << 15  # tokens at a time: what is computed for them stays in the cache


@dataclass(frozen=True)
class Grid:
    """Settings of one combiner: every k with every temperature and every weight."""

    k: Sequence[int]
    temperatures: Sequence[float]
    weights: Sequence[float]

    def __len__(self) -> int:
        """The number of points."""
        return len(self.k) * len(self.temperatures) * len(self.weights)


def log_likelihoods(
    predictions: Predictions,
    combiner: Combiner,
    grid: Grid,
    floors: Sequence[float] = (0.0,),
    on_progress: Callable[[int], None] | None = None,
) -> Tensor:
    """log p of the references, a token, at every point of a grid, exactly as the combiner has it.

    Args:
        predictions: What was retrieved, with at least the grid's largest k.
        combiner: Weighs the neighbours.
        grid: The settings.
        floors: Tokens less likely than this count as if they were this likely: a search does not write them anyway, and
            to lift them a little costs certainty where neighbours are right.
        on_progress: Called with the number of points that are done.

    Returns:
        (floors, k, temperatures, weights) float64
    """
    sums = torch.zeros(len(floors), len(grid.k), len(grid.temperatures), len(grid.weights), dtype=torch.float64)
    blocks = [predictions.rows(slice(start, start + BLOCK)) for start in range(0, len(predictions), BLOCK)]
    weights = torch.tensor(grid.weights, dtype=torch.float64).unsqueeze(1)
    for i, k in enumerate(grid.k):
        for j, temperature in enumerate(grid.temperatures):
            settings = SearchSettings(k=k, temperature=temperature, weight=1.0)
            for block in blocks:
                inputs = block.inputs.nearest(k)
                combination = combiner.combine(inputs, settings)
                probs = neighbour_probability(block.targets, inputs.neighbours, combination).double()
                each = weights * combination.row_weights().double()  # (weights, tokens)
                log_mixture = interpolate(block.log_probs.double(), probs, each)
                for f, floor in enumerate(floors):
                    bounded = log_mixture.clamp(min=math.log(floor)) if floor > 0 else log_mixture
                    sums[f, i, j] += bounded.sum(dim=1)
            if on_progress is not None:
                on_progress(len(grid.weights))
    return sums / max(len(predictions), 1)


def median_distance(neighbours: Neighbours) -> float:
    """A usual distance: what temperatures are measured by."""
    found = neighbours.distances[neighbours.found]
    return found.median().abs().clamp(min=1e-3).item() if len(found) else 1.0


def temperatures_for(combiner: str, median: float, steps_per_octave: int = 2) -> list[float]:
    """The temperatures that are worth trying with a combiner, from small to large.

    Args:
        combiner: Its name.
        median: A usual distance.
        steps_per_octave: How many choices there are between one and its double.
    """
    largest = COMBINERS.get(combiner).largest_temperature
    if largest is None:
        return [SearchSettings.temperature]  # any: it has its own
    steps = math.floor(steps_per_octave * math.log2(largest / SMALLEST_TEMPERATURE)) + 1
    return [float(f"{SMALLEST_TEMPERATURE * 2.0 ** (step / steps_per_octave) * median:.3g}") for step in range(steps)]

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FLOORS = (0.0, 0.001, 0.01, 0.05, 0.2)


class Point(NamedTuple):
    """A place on the grid."""

    size: int
    k: int
    temperature: int
    weight: int


def candidates(values: NDArray[np.float64], count: int) -> list[Point]:
    """Points worth decoding: likely ones that are not all the same.

    What decodes best is not always what is most likely, so each floor names its own best in turn, the next of them a
    point that is no neighbour of one already named.

    Args:
        values: Log-likelihoods, (floors, sizes, k, temperatures, weights); see `log_likelihoods`.
        count: How many points.
    """
    orders = [_best_first(of_floor) for of_floor in values]
    chosen: list[Point] = []
    while len(chosen) < count:
        before = len(chosen)
        for order in orders:
            point = next((point for point in order if not any(_close(point, other) for other in chosen)), None)
            if point is not None and len(chosen) < count:
                chosen.append(point)
        if len(chosen) == before:
            break
    return chosen


def _best_first(values: NDArray[np.float64]) -> Iterator[Point]:
    order = np.argsort(-values, axis=None, kind="stable")
    places = np.stack(np.unravel_index(order, values.shape), axis=1)
    return (Point(*place) for place in places.tolist())


def _close(one: Point, other: Point) -> bool:
    """Whether two points differ by too little to make different translations."""
    steps = abs(one.k - other.k) + abs(one.temperature - other.temperature) / 2 + abs(one.weight - other.weight) / 2
    return one.size == other.size and steps <= 1

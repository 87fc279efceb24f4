"""Constants out of what was timed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from knn_seq.plan.cost.constants import SERIAL, Costs
from knn_seq.plan.cost.job import Work

SEARCHING = ("call", "load", "compare", "walk", "visit", "scan", "rank", "locate")  # what the time of searches can tell


class Observation(NamedTuple):
    """Some work, and the seconds that it took on so many cores."""

    work: Work
    seconds: float
    cores: int = 1


def fit(observations: Sequence[Observation], names: Sequence[str], known: Costs | None = None) -> Costs:
    """The constants of these names, none negative, for which the relative errors are smallest.

    Args:
        observations: Made of work that the names or what is known account for.
        names: Few of them: every choice of those that are not zero is tried.
        known: All other constants; None: they are zero.
    """
    others = (known or Costs()).known(dict.fromkeys(names, 0.0))
    counts = np.array(
        [
            [each.work.get(name, 0.0) / (1 if name in SERIAL else each.cores) / each.seconds for name in names]
            for each in observations
        ]
    ).reshape(-1, len(names))
    wanted = np.array([1 - others.seconds(each.work, each.cores) / each.seconds for each in observations])
    scale = np.maximum(counts.max(axis=0, initial=0.0), 1e-300)  # counts are billions or ones
    best, least = np.zeros(len(names)), float(np.square(wanted).sum())
    for size in range(1, len(names) + 1):
        for chosen in map(list, combinations(range(len(names)), size)):
            some = np.linalg.lstsq(counts[:, chosen] / scale[chosen], wanted, rcond=1e-9)[0]
            tried = np.zeros(len(names))
            tried[chosen] = some
            error = float(np.square(counts / scale @ tried - wanted).sum())
            if (some >= 0).all() and error < least * (1 - 1e-9):
                best, least = tried, error
    return others.known(dict(zip(names, map(float, best / scale), strict=True)))

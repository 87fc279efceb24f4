"""Systems measured in turns, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Ratio(NamedTuple):
    """How fast a system is relative to the first, over all rounds."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


def rates(systems: Mapping[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """What each system does in a second, in each round but a first one; a system returns how much it did."""
    results: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds + 1):
        for name, run in systems.items():
            start = time.perf_counter()
            done = run()
            if number:
                results[name].append(done / (time.perf_counter() - start))
    return results


def ratios(measured: Mapping[str, list[float]]) -> dict[str, Ratio]:
    """Each system against the first, round by round."""
    first = next(iter(measured.values()))
    by_round = {
        name: [own / other for own, other in zip(values, first, strict=True)] for name, values in measured.items()
    }
    return {name: Ratio(statistics.median(each), min(each), max(each)) for name, each in by_round.items()}

"""Systems measured in turns, so that whatever else the machine does hits all of them alike, and what came of it."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SPEED_FOLDER = Path("results/speed")  # datastores that are made for speed alone


class Ratio(NamedTuple):
    """One figure relative to another, over all rounds."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, own: Sequence[float], other: Sequence[float]) -> Ratio:
        """Round by round: what the machine did meanwhile cancels out."""
        return cls.over([mine / theirs for mine, theirs in zip(own, other, strict=True)])

    @classmethod
    def over(cls, values: Sequence[float]) -> Ratio:
        """Of ratios that are there already, one a round."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


@dataclass(frozen=True)
class Row:
    """One line of the table that `bench.py` prints.

    Args:
        what: What was measured, and against what.
        ratio: What came out.
        goal: What was to be reached; None: there is none.
        at_most: Whether the ratio is to be no larger than the goal, not no smaller.
        figures: Whatever else was measured, every round of it, for the JSON file.
        flaw: Why the goal is not reached whatever the ratio says; empty: it decides.
    """

    what: str
    ratio: Ratio
    goal: float | None = None
    at_most: bool = False
    figures: Mapping[str, Any] = field(default_factory=dict)
    flaw: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the median reaches the goal; None: there is none."""
        if self.goal is None:
            return None
        fits = self.ratio.median <= self.goal if self.at_most else self.ratio.median >= self.goal
        return fits and not self.flaw

    def __str__(self) -> str:
        """A row of a Markdown table."""
        goal = "" if self.goal is None else f"{'≤' if self.at_most else '≥'} {self.goal:g}"
        verdict = {None: "", True: "reached", False: "**not reached**"}[self.reached]
        return f"| {self.what} | {self.ratio} | {goal} | {', '.join(filter(None, (verdict, self.flaw)))} |"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {**asdict(self), "ratio": self.ratio._asdict(), "reached": self.reached}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        """What `to_dict` made, read again."""
        return cls(data["what"], Ratio(**data["ratio"]), data["goal"], data["at_most"], data["figures"], data["flaw"])


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    return "\n".join(["| | median (lowest to highest round) | goal | |", "|---|---|---|---|", *map(str, rows)])


@dataclass(frozen=True)
class Options:
    """How much is measured.

    Args:
        rounds: Of all systems in turns, beside a first one that does not count.
        full: The complete grid of models, sizes and settings, which takes hours.
        quick: Tiny sizes: shows whether a script runs, not how fast anything is.
    """

    rounds: int = 7
    full: bool = False
    quick: bool = False

    def goal(self, value: float) -> float | None:
        """The goal, unless nothing that is measured can tell whether it is reached."""
        return None if self.quick else value


def command_line(description: str | None) -> argparse.ArgumentParser:
    """What the command lines of all parts of the suite have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=SPEED_FOLDER, help="datastores are made or found there")
    parser.add_argument("--rounds", type=int, help=f"default: {Options.rounds}")
    parser.add_argument("--full", action="store_true", help="the complete grid of models, sizes and settings")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    return parser


def options_of(arguments: argparse.Namespace) -> Options:
    """What the command line asks for."""
    rounds = arguments.rounds or (1 if arguments.quick else Options.rounds)
    return Options(rounds, arguments.full, arguments.quick)


def rates(systems: Mapping[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """What each system does in a second, in each round but a first one; a system returns how much it did."""
    measured = rates_by_pieces({name: [run] for name, run in systems.items()}, rounds)
    return {name: [rate for (rate,) in its] for name, its in measured.items()}


def rates_by_pieces(
    systems: Mapping[str, Sequence[Callable[[], int]]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[list[float]]]:
    """The same for systems whose work has pieces, and for each piece of a round.

    They take turns piece by piece, and every other time in reverse.  Seconds are those of the clock: with
    `time.process_time` those of all threads of this process together.
    """
    results: dict[str, list[list[float]]] = {name: [[] for _ in range(rounds)] for name in systems}
    for number in range(-1, rounds):
        for place, pieces in enumerate(zip(*systems.values(), strict=True), number):
            turns = list(zip(systems, pieces, strict=True))
            for name, run in turns if place % 2 == 0 else reversed(turns):
                start = clock()
                rate = run() / (clock() - start)
                if number >= 0:
                    results[name][number].append(rate)
    return results


def ratios(measured: Mapping[str, Sequence[float]]) -> dict[str, Ratio]:
    """Each system against the first, round by round."""
    first = next(iter(measured.values()))
    return {name: Ratio.of(values, first) for name, values in measured.items()}


def ratios_by_pieces(measured: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, Ratio]:
    """The same: a round's ratio is the median of its pieces', so that what disturbs one of them does not count."""
    first = next(iter(measured.values()))
    return {
        name: Ratio.over([Ratio.of(*both).median for both in zip(its, first, strict=True)])
        for name, its in measured.items()
    }

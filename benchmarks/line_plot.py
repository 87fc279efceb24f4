"""Lines as SVG files that can be read on a white page and on a black one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

INK = "#7f8790"  # between white and black, as the colours are
COLOURS = ("#d9700f", "#3d85c6", "#2e9e6b", "#a866c9")
SIZE = (4.6, 2.9)  # inches

Points = Sequence[tuple[float, float]]


def write_lines(
    path: Path,
    labels: tuple[str, str],
    lines: Mapping[str, Points],
    points: Mapping[str, tuple[float, float]] | None = None,
    level: tuple[str, float] | None = None,
    logarithmic: bool = True,
) -> None:
    """Draw lines with a mark at every point that was measured.

    Args:
        path: Where the file is written.
        labels: Of the two axes.
        lines: The points of each line, by its name.
        points: Single ones, by name.
        level: A name and a height, drawn across.
        logarithmic: Whether the horizontal axis is; its ticks are the places that were measured.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
        axes.plot(*zip(*line, strict=True), "o-", color=colour, markersize=4, linewidth=1.6, label=name)
    for (name, point), colour in zip((points or {}).items(), COLOURS[len(lines) :], strict=False):
        axes.plot(*point, "D", color=colour, markersize=7, label=name)
    if level is not None:
        axes.axhline(level[1], color=INK, linewidth=1, linestyle=(0, (3, 3)), label=level[0])
    places = sorted({x for line in lines.values() for x, _ in line})
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xticks(places, [shown(place) for place in places])
        axes.xaxis.set_minor_locator(NullLocator())
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(which="both", color=INK, labelcolor=INK, labelsize=8)
    axes.grid(True, color=INK, alpha=0.25, linewidth=0.6)
    axes.set_xlabel(labels[0], color=INK, fontsize=9)
    axes.set_ylabel(labels[1], color=INK, fontsize=9)
    axes.legend(frameon=False, labelcolor=INK, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}):
        figure.savefig(path, format="svg", transparent=True, metadata=no_metadata)


def shown(number: float) -> str:
    """A number in few characters: 20k, 1.1m."""
    for size, letter in ((1e6, "m"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def curves_folder(page: Path | None, results: Path) -> Path:
    """Where the curves of a page lie; without one they are looked at only."""
    return results / "curves" if page is None else page.parent / "curves"


def image(path: Path, alternative: str) -> str:
    """What a page says to show a curve that lies in its folder of curves."""
    return f"![{alternative}]({path.parent.name}/{path.name})"

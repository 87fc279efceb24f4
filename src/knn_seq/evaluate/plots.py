"""Figures of a comparison and of a tuning; in a page they take the page's colours."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knn_seq.errors import MissingLibrary
from knn_seq.evaluate.comparison import PARTS, Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The page's style sheet has a variable of each name, with the same value by day and another one by night.
PALETTE = {
    "ink": "#1f2429",
    "muted": "#5d666f",
    "rule": "#d9dde1",
    "model": "#8b949d",
    "accent": "#b3500b",
    "accent-soft": "#e3b58f",
}
SMALL = (4.6, 2.7)  # inches; two stand side by side in the page
WIDE = (7.6, 2.9)
PART_COLOURS = dict(zip(PARTS, ("model", "accent", "accent-soft"), strict=True))
CHOSEN: dict[str, Any] = {  # how the chosen settings are marked
    "marker": "o",
    "color": PALETTE["ink"],
    "markersize": 8,
    "markerfacecolor": "none",
    "markeredgewidth": 1.8,
}
CHARACTERS = 22  # of a system's name in a figure
GROUP = 10  # sentences at least behind each point of `length_figure`


def require_plot_libraries() -> None:
    """Raise a `MissingLibrary` if figures and pages cannot be made here."""
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise MissingLibrary(f"The library {missing[0]} is missing: pip install knn-seq[plot].")


def svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element whose colours are the page's variables.

    Args:
        figure: The figure.
        name: Goes before all ids in it, so that figures in one page do not meet.
    """
    import matplotlib

    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for variable, colour in PALETTE.items():
        text = text.replace(colour, f"var(--{variable})")
    return text


def score_figure(comparison: Comparison, metric: str) -> Figure:
    """Each system's score, and how far it is from the first's."""
    systems = comparison.systems
    values = [system.scores[metric].value for system in systems]
    digits = score_digits(values)
    figure, [axes] = _figure((SMALL[0], 0.75 + 0.34 * len(systems)))
    base = values[0]
    axes.axvline(base, color=PALETTE["model"], linewidth=1, linestyle=(0, (2, 2)))
    for row, value in enumerate(values):
        colour = PALETTE["accent" if row else "model"]
        axes.plot([base, value], [row, row], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot(value, row, "o", color=colour, markersize=6)
        label = f"{value:.{digits}f}" + (f"  ({signed(value - base, digits)})" if row else "")
        left = value < base
        axes.annotate(
            label,
            (value, row),
            (-8 if left else 8, 0),
            textcoords="offset points",
            va="center",
            ha="right" if left else "left",
            color=PALETTE["ink"],
        )
    _rows(axes, [system.name for system in systems])
    extent = max(values) - min(values) or abs(base) * 0.1 or 1.0
    # Margins for the labels, which lie beyond the points.
    margin_left = 0.75 if min(values) < base else 0.15
    axes.set_xlim(min(values) - margin_left * extent, max(values) + 0.75 * extent)
    axes.set_xlabel(metric)
    return figure


def speed_figure(comparison: Comparison, metric: str) -> Figure:
    """Score against speed; a line from the lowest to the highest speed of each system."""
    systems = comparison.systems
    speeds = [system.tokens_per_second for system in systems]
    values = [system.scores[metric].value for system in systems]
    figure, [axes] = _figure()
    axes.grid(True, color=PALETTE["rule"], linewidth=0.6)
    axes.set_xlim(0, max(max(system.speeds) for system in systems) * 1.12)
    extent = max(values) - min(values) or 1.0
    heights: list[float] = []
    for place in np.argsort(values, kind="stable").tolist():
        speed, value = speeds[place], values[place]
        colour = PALETTE["accent" if place else "model"]
        slowest, fastest = min(systems[place].speeds), max(systems[place].speeds)
        axes.plot([slowest, fastest], [value, value], color=colour, linewidth=1.2, gid=f"range{place}")
        axes.plot(speed, value, "o", color=colour, markersize=7)
        # A label of its own line for each point, however near the points are.
        height = max(value, heights[-1] + 0.11 * extent) if heights else value
        heights.append(height)
        left = speed > 0.5 * max(speeds)
        axes.annotate(
            _short(systems[place].name),
            (speed, value),
            (slowest - 0.03 * max(speeds) if left else fastest + 0.03 * max(speeds), height),
            va="center",
            ha="right" if left else "left",
            color=PALETTE["ink"],
        )
    axes.set_ylim(min(values) - 0.2 * extent, max(max(values), heights[-1]) + 0.2 * extent)
    axes.set_xlabel("tokens a second")
    axes.set_ylabel(metric)
    return figure


def time_figure(comparison: Comparison) -> Figure:
    """Where the time of one token goes."""
    systems = comparison.systems
    figure, [axes] = _figure((SMALL[0], 0.95 + 0.34 * len(systems)))
    starts = np.zeros(len(systems))
    for part in PARTS:
        times = np.array([1000 * system.shares[part] / system.tokens_per_second for system in systems])
        axes.barh(range(len(systems)), times, 0.62, starts, color=PALETTE[PART_COLOURS[part]], label=part)
        starts += times
    for row, total in enumerate(starts):
        axes.annotate(
            f"{total:.3g}", (total, row), (5, 0), textcoords="offset points", va="center", color=PALETTE["ink"]
        )
    _rows(axes, [system.name for system in systems])
    axes.set_xlim(0, max(starts) * 1.15)
    axes.set_xlabel("milliseconds a token")
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        frameon=False,
        handlelength=0.9,
        handleheight=0.9,
        columnspacing=1.2,
        borderaxespad=0.1,
        labelcolor=PALETTE["ink"],
    )
    return figure


def gains_figure(gains: ArrayLike) -> Figure:
    """How many sentences gain and lose how much chrF, (sentences,); those without a difference are left out."""
    from matplotlib.ticker import MaxNLocator

    differences = np.asarray(gains, np.float64)
    differences = differences[differences != 0]
    figure, [axes] = _figure()
    largest = float(np.abs(differences).max(initial=1.0))
    width = _round_step(largest / 9)
    steps = int(np.ceil(largest / width))
    edges = width * np.arange(-steps, steps + 1)
    counts, _ = np.histogram(differences, edges)
    colours = [PALETTE["accent" if edge >= 0 else "model"] for edge in edges[:-1]]
    axes.bar(edges[:-1], counts, 0.9 * width, align="edge", color=colours)
    axes.axvline(0, color=PALETTE["ink"], linewidth=0.8)
    axes.grid(True, axis="y", color=PALETTE["rule"], linewidth=0.6)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("difference of sentence chrF")
    axes.set_ylabel("sentences")
    return figure


def length_figure(sources: Sequence[str], gains: ArrayLike) -> Figure | None:
    """The mean gain of sentences of like length, with its 95 % interval; None if they are too few to tell.

    Args:
        sources: The sentences.
        gains: The difference of sentence chrF, (sentences,).
    """
    lengths, differences = np.array(list(map(len, sources))), np.asarray(gains, np.float64)
    groups = min(5, len(lengths) // GROUP)
    if groups < 2:
        return None
    figure, [axes] = _figure()
    labels = []
    for place, group in enumerate(np.array_split(np.argsort(lengths, kind="stable"), groups)):
        of_group = differences[group]
        error = 1.96 * of_group.std(ddof=1) / len(of_group) ** 0.5
        axes.errorbar(place, of_group.mean(), error, fmt="o", color=PALETTE["accent"], capsize=3, markersize=6)
        labels.append(f"{lengths[group].min()}–{lengths[group].max()}")
    axes.axhline(0, color=PALETTE["ink"], linewidth=0.8)
    axes.grid(True, axis="y", color=PALETTE["rule"], linewidth=0.6)
    axes.set_xlim(-0.5, groups - 0.5)
    axes.set_xticks(range(groups), labels)
    axes.set_xlabel("characters of the source")
    axes.set_ylabel("mean chrF difference")
    return figure


def surface_figure(tuning: Mapping[str, Any]) -> Figure:
    """The log-likelihood of a dev set over temperature and weight at the chosen k, and its best at each k.

    A combiner with a temperature of its own has a line over the weights instead.

    Args:
        tuning: One entry of a datastore's `tuning.json`: "surface", "chosen" and "base_log_likelihood".
    """
    surface, chosen, base = tuning["surface"], tuning["chosen"], tuning["base_log_likelihood"]
    ks, temperatures, weights = (np.array(surface[name], np.float64) for name in ("k", "temperature", "weight"))
    gains = np.array(surface["log_likelihood"], np.float64) - base  # (k, temperatures, weights)
    nearest_k = int(np.abs(ks - chosen["k"]).argmin())
    figure, [left, line] = _figure(WIDE, ratios=(2, 1))
    _title(left, f"Gain in log-likelihood a token at k = {chosen['k']}")
    if len(temperatures) == 1:
        _weight_line(left, weights, gains[nearest_k, 0], chosen["weight"])
    else:
        _heat_map(left, temperatures, weights, gains[nearest_k].T, (chosen["temperature"], chosen["weight"]))
    by_k = np.nanmax(gains.reshape(len(ks), -1), axis=1)
    line.grid(True, color=PALETTE["rule"], linewidth=0.6)
    line.plot(ks, by_k, "o-", color=PALETTE["accent"], markersize=3.5, linewidth=1.3)
    line.plot(chosen["k"], by_k[nearest_k], **CHOSEN)
    line.set_xscale("log", base=2)
    line.xaxis.set_major_formatter(lambda k, _: f"{k:g}")
    line.set_xlabel("k")
    _title(line, "Best gain at each k")
    return figure


def _weight_line(axes: Axes, weights: NDArray[np.float64], gains: NDArray[np.float64], chosen: float) -> None:
    """Gains, (weights,), over the weights."""
    axes.grid(True, color=PALETTE["rule"], linewidth=0.6)
    axes.axhline(0, color=PALETTE["model"], linewidth=1, linestyle=(0, (2, 2)))
    axes.plot(weights, gains, "o-", color=PALETTE["accent"], markersize=3.5, linewidth=1.3)
    [marker] = axes.plot(chosen, gains[np.abs(weights - chosen).argmin()], **CHOSEN)
    marker.set_gid("chosen")
    axes.set_xlabel("weight")


def _heat_map(
    axes: Axes,
    temperatures: NDArray[np.float64],
    weights: NDArray[np.float64],
    gains: NDArray[np.float64],
    chosen: tuple[float, float],
) -> None:
    """Gains, (weights, temperatures), as colours and contours."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba
    from matplotlib.ticker import MaxNLocator

    # One colour that fades out lies well on a white page and on a black one.
    accent = to_rgba(PALETTE["accent"])
    fading = LinearSegmentedColormap.from_list("fading", [(*accent[:3], 0.04), (*accent[:3], 0.85)])
    best, least = float(np.nanmax(gains)), float(np.nanmin(gains))
    lowest = max(least, 0.0) if best > 0 else least  # what is worse than the model alone is not worth telling apart
    mesh = axes.pcolormesh(
        _edges(np.log(temperatures), np.exp), _edges(weights), gains, cmap=fading, vmin=lowest, vmax=best
    )
    mesh.set_gid("heat")
    if min(gains.shape) > 1 and best > lowest:
        levels = [
            level for level in MaxNLocator(6).tick_values(lowest, best) if max(least, lowest - 1e-9) < level < best
        ]
        styles = ["dashed" if abs(level) < 1e-9 else "solid" for level in levels]
        lines = axes.contour(
            temperatures, weights, gains, levels, colors=PALETTE["ink"], linewidths=0.6, linestyles=styles
        )
        axes.clabel(lines, fontsize=7, fmt=lambda level: f"{level:.2f}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda temperature, _: f"{temperature:g}")
    axes.set_xlabel("temperature")
    axes.set_ylabel("weight")
    [marker] = axes.plot(*chosen, **CHOSEN)
    marker.set_gid("chosen")


def signed(value: float, digits: int) -> str:
    """A difference with its sign; the minus is a real one."""
    return f"{value:+.{digits}f}".replace("-", "−")


def score_digits(values: Sequence[float]) -> int:
    """How many digits scores need: some metrics give percentages, others numbers around 1."""
    return 1 if max(map(abs, values)) > 2 else 3


def _figure(size: tuple[float, float] = SMALL, ratios: Sequence[float] = (1,)) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels side by side, without a frame."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    panels = list(figure.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0])
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(PALETTE["rule"])
        axes.tick_params(which="both", color=PALETTE["rule"], labelcolor=PALETTE["muted"], labelsize=8)
        axes.xaxis.label.set(color=PALETTE["muted"], size=8.5)
        axes.yaxis.label.set(color=PALETTE["muted"], size=8.5)
        axes.set_axisbelow(True)
    return figure, panels


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """A row a system, the first on top."""
    axes.set_yticks(range(len(names)), map(_short, names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=PALETTE["ink"], labelsize=8.5)
    axes.spines["left"].set_visible(False)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=8.5, color=PALETTE["ink"])


def _short(name: str) -> str:
    name = name if len(name) <= CHARACTERS else name[: CHARACTERS - 1] + "…"
    return name.replace("$", r"\$")  # what stands between dollars would be set as mathematics


def _round_step(width: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(width))
    return float(power * next(step for step in (1, 2, 5, 10) if step * power >= width * (1 - 1e-9)))


def _edges(centres: NDArray[np.float64], back: Any = None) -> NDArray[np.float64]:
    """The borders of cells around their centres."""
    if len(centres) == 1:
        edges = centres[0] + np.array([-0.5, 0.5]) * (abs(centres[0]) * 0.2 or 0.2)
    else:
        middles = (centres[1:] + centres[:-1]) / 2
        edges = np.array([2 * centres[0] - middles[0], *middles, 2 * centres[-1] - middles[-1]])
    return np.asarray(edges if back is None else back(edges))

"""Figures say what the figures are."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from knn_seq.decoding import Translation
from knn_seq.evaluate import plots
from knn_seq.evaluate.comparison import Comparison, System
from knn_seq.metrics import Score


def system(name, value, seconds=1.0, shares=(1.0, 0.0, 0.0)):
    translations = [Translation("a b", "x", [1, 2])] * 50
    speeds = [100 / seconds * factor for factor in (0.9, 1.0, 1.3)]
    scores = {"BLEU": Score(value, "")}
    return System(name, None, {}, translations, scores, seconds, speeds, dict(zip(plots.PARTS, shares)))


def comparison(*systems):
    return Comparison(list(systems), ["x"] * 50, ["a b"] * 50)


def test_a_missing_library_is_named_before_anything_is_translated(knn_seq, number_store, number_corpus, monkeypatch):
    monkeypatch.setattr("knn_seq.evaluate.plots.find_spec", lambda name: None)
    html = number_store.path.parent / "report.html"
    code, out, err = knn_seq("evaluate", number_store.path, "--test", number_corpus, "--html", html)
    assert (code, out) == (2, "")
    assert err == "knn-seq: The library matplotlib is missing: pip install knn-seq[plot].\n"
    assert not html.exists()


def texts(figure):
    """What is written in a figure, by way of its SVG."""
    return [element.text for element in ElementTree.fromstring(plots.svg(figure, "f")).iter() if element.text]


def tuning(k=(1, 4, 16), temperatures=(1.0, 10.0, 100.0), weights=(0.25, 0.5, 0.75), base=-2.0, best=(1, 2, 0)):
    shape = (len(k), len(temperatures), len(weights))
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    values = base + 1.0 - 0.3 * np.abs(places - np.array(best)).sum(axis=-1)
    return {
        "base_log_likelihood": base,
        "surface": {
            "k": list(k),
            "temperature": list(temperatures),
            "weight": list(weights),
            "log_likelihood": values.tolist(),
        },
        "chosen": {"k": k[best[0]], "temperature": temperatures[best[1]], "weight": weights[best[2]]},
    }


def test_the_surface_shows_the_chosen_point():
    figure = plots.surface_figure(tuning())
    heat, line = figure.axes
    [marker] = [each for each in heat.lines if each.get_gid() == "chosen"]
    assert marker.get_xydata().tolist() == [[100.0, 0.25]]
    assert heat.get_xscale() == line.get_xscale() == "log"
    assert "k = 4" in heat.get_title(loc="left")
    [mesh] = [each for each in heat.collections if each.get_gid() == "heat"]
    cells = np.asarray(mesh.get_array()).reshape(3, 3)  # (weights, temperatures)
    assert cells[0, 2] == pytest.approx(1.0)
    assert cells.argmax() == 2
    best_by_k, chosen_k = (each.get_xydata() for each in line.lines)
    assert best_by_k == pytest.approx(np.array([[1, 0.7], [4, 1.0], [16, 0.7]]))
    assert chosen_k == pytest.approx(np.array([[4, 1.0]]))


def test_what_is_worse_than_the_model_alone_has_the_same_colour():
    [mesh] = [
        each for each in plots.surface_figure(tuning(best=(0, 0, 0))).axes[0].collections if each.get_gid() == "heat"
    ]
    assert (mesh.norm.vmin, mesh.norm.vmax) == (0.0, pytest.approx(1.0))
    lowest, *_, highest = mesh.cmap(np.linspace(0, 1, 5)).tolist()
    assert lowest[:3] == highest[:3]
    assert lowest[3] < highest[3]


@pytest.mark.parametrize(
    "shape",
    [
        {"k": (8,), "best": (0, 1, 1)},
        {"temperatures": (5.0,), "best": (1, 0, 1)},
        {"k": (8,), "temperatures": (5.0,), "weights": (0.5,), "best": (0, 0, 0)},
        {"base": 5.0},
    ],
)
def test_surfaces_of_any_shape_are_drawn(shape):
    one_temperature = len(shape.get("temperatures", (1, 2))) == 1
    axes = plots.surface_figure(tuning(**shape)).axes[0]
    assert axes.get_xlabel() == ("weight" if one_temperature else "temperature")


def test_a_combiner_with_its_own_temperature_has_a_line_over_the_weights():
    data = tuning(temperatures=(5.0,), best=(1, 0, 1))
    line, _ = plots.surface_figure(data).axes
    gains = np.array(data["surface"]["log_likelihood"])[1, 0] - data["base_log_likelihood"]
    weights = data["surface"]["weight"]
    assert any(np.allclose(each.get_xydata(), np.stack([weights, gains], axis=1)) for each in line.lines[1:2])
    [marker] = [each for each in line.lines if each.get_gid() == "chosen"]
    assert marker.get_xydata().tolist() == [[weights[1], gains[1]]]
    assert not line.collections


def test_a_surface_without_any_gain_is_drawn():
    data = tuning()
    data["base_log_likelihood"] = 3.0
    assert "weight" in texts(plots.surface_figure(data))


def test_scores_stand_beside_their_differences():
    figure = plots.score_figure(comparison(system("base", 30.0), system("good", 34.25), system("bad", 28.0)), "BLEU")
    assert {"base", "good", "bad", "30.0", "34.2  (+4.2)", "28.0  (−2.0)"} <= set(texts(figure))


def test_scores_around_one_have_more_digits():
    figure = plots.score_figure(comparison(system("base", 0.81), system("good", 0.8234)), "BLEU")
    assert "0.823  (+0.013)" in texts(figure)


def test_labels_of_equal_systems_do_not_meet():
    figure = plots.speed_figure(comparison(*(system(f"s{i}", 31.0 if i else 30.0) for i in range(5))), "BLEU")
    [axes] = figure.axes
    heights = sorted(label.xyann[1] for label in axes.texts)
    lower, upper = axes.get_ylim()
    assert min(np.diff(heights)) > 0.04 * (upper - lower)
    assert lower < heights[0]
    assert heights[-1] < upper


def test_speeds_have_a_range():
    figure = plots.speed_figure(comparison(system("base", 30.0, 0.2), system("knn", 31.0, 0.4)), "BLEU")
    [axes] = figure.axes
    ranges = [line.get_xydata().tolist() for line in axes.lines if (line.get_gid() or "").startswith("range")]
    assert np.array(ranges) == pytest.approx(np.array([[[450, 30], [650, 30]], [[225, 31], [325, 31]]]))
    assert axes.get_xlim()[1] > 650


def test_time_is_cut_in_its_parts():
    figure = plots.time_figure(comparison(system("base", 30.0, 0.2), system("knn", 31.0, 0.4, (0.5, 0.375, 0.125))))
    [axes] = figure.axes
    starts = [[bar.get_x() for bar in bars] for bars in axes.containers]
    assert starts == pytest.approx(np.array([[0.0, 0.0], [2.0, 2.0], [2.0, 3.5]]))
    widths = [[bar.get_width() for bar in bars] for bars in axes.containers]
    assert widths == pytest.approx(np.array([[2.0, 2.0], [0.0, 1.5], [0.0, 0.5]]))


def test_gains_and_losses_are_counted_on_their_sides():
    figure = plots.gains_figure([-10.0, -0.1, 0.0, 0.0, 0.1, 0.2, 10.0])
    bars = [bar for bar in figure.axes[0].patches if bar.get_height()]
    assert sum(bar.get_height() for bar in bars if bar.get_x() < 0) == 2
    assert sum(bar.get_height() for bar in bars if bar.get_x() >= 0) == 3
    assert plots.gains_figure([0.0, 0.0]).axes


def test_gain_by_length():
    sources = ["x" * length for length in (5, 50) for _ in range(10)]
    figure = plots.length_figure(sources, [1.0, 3.0] * 5 + [-1.0, -3.0] * 5)
    points = [bar.lines[0].get_ydata()[0] for bar in figure.axes[0].containers]
    assert points == [2.0, -2.0]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["5–5", "50–50"]
    assert plots.length_figure(sources[:19], [1.0] * 19) is None


def test_svg_takes_the_colours_of_the_page_and_ids_of_its_own():
    figure = comparison(system("base", 30.0), system("$<b>&amp;$", 31.0))
    one, other = (plots.svg(plots.score_figure(figure, "BLEU"), name) for name in ("one", "other"))
    assert one.startswith("<svg")
    assert "var(--accent)" in one
    assert not any(colour in one for colour in plots.PALETTE.values())
    assert "$&lt;b&gt;&amp;amp;$" in one

    def ids(text):
        return set(re.findall(r'id="([^"]+)"', text))

    assert ids(one)
    assert not ids(one) & ids(other)
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', one)) <= ids(one)
    assert one == plots.svg(plots.score_figure(figure, "BLEU"), "one")

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import UserError
from knn_seq.likelihood import Grid, Predictions, Reference, log_likelihoods, median_distance, predict, temperatures_for
from knn_seq.metrics import METRICS, Metric
from knn_seq.progress import Progress
from knn_seq.settings import SearchSettings
from knn_seq.translate import Translator
from knn_seq.tune.candidates import FLOORS, Point, candidates
from knn_seq.tune.tuning import Row, Surface, Tuning

K_CHOICES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LARGEST_K = 64
STEPS_PER_OCTAVE = 3
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(1, 20))
SURE_CHOICES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
SURE_COST = 0.02  # of the likelihood gained over the model alone that it may cost not to search where the model is sure


def tune(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metric: str | Metric = "bleu",
    sizes: Sequence[int | None] = (None,),
    largest_k: int = LARGEST_K,
    confirm: int = 8,
    find_sure: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Tuning:
    """Find the k, temperature and weight that translate a dev set best.

    The dev set is read once under teacher forcing and searched once for the neighbours of every token.  From these the
    likelihood of the references is computed exactly at every point of a fine grid; the best few are decoded with.

    Args:
        translator: The translator.
        sources: The sentences of the dev set.
        references: Their translations.
        metric: What decides among the best few.
        sizes: Subset sizes to try, for a retriever that has them; None: the one that the settings say.
        largest_k: The largest k to try.
        confirm: How many points to decode with.
        find_sure: Find as well from what probability on the model's own choice may stand without a search, if from any.
        quiet: Show no progress.
        **settings: What is tuned, and how is decoded: fields of `SearchSettings` and `DecodingSettings`.
    """
    search, _ = translator.settings(settings)
    dev = _DevSet(
        translator, sources, references, METRICS.get(metric)() if isinstance(metric, str) else metric, settings
    )
    sizes = [size or search.subset_size for size in sizes]
    retriever = translator.retriever(search)
    predictions = predict(retriever, translator.model, dev.references(), largest_k, sizes, label="search", quiet=quiet)
    if not any(each.neighbours.found.any() for each in predictions):
        raise UserError("Nothing was found for any token of the dev set: there is nothing to tune.")
    grid = _grid(search.combiner, predictions[0], largest_k)
    values = _likelihoods(predictions, grid, search.sure, quiet)
    points = candidates(values, max(confirm, 1))
    with Progress("decode", len(points) + 1 + find_sure, "settings", quiet=quiet) as progress:

        def decoded(chosen: SearchSettings, log_likelihood: float) -> Row:
            row = Row(chosen, log_likelihood, dev.score(chosen))
            progress.update(1)
            return row

        base = decoded(replace(search, weight=0.0), predictions[0].log_probs.double().mean().item())
        rows = [
            decoded(_at(grid, point, replace(search, subset_size=sizes[point.size])), float(values[(0, *point)]))
            for point in points
        ]
        best = max(rows, key=lambda row: (row.score, row.log_likelihood))
        found = _sure(best, base, predictions[points[rows.index(best)].size]) if find_sure else None
        if found is not None:
            best = decoded(*found)
            rows.append(best)
    surfaces = [Surface(grid, size, values[0, number]) for number, size in enumerate(sizes)]
    return Tuning(dev.metric.name, len(predictions[0]), surfaces, base, rows, best)


class _DevSet:
    """Sentences with their references, as the likelihood and as the decoder needs them."""

    def __init__(
        self,
        translator: Translator,
        sources: Sequence[str],
        targets: Sequence[str],
        metric: Metric,
        settings: dict[str, Any],
    ) -> None:
        self.translator, self.metric, self.settings = translator, metric, settings
        self.sources, self.targets = list(sources), list(targets)

    def references(self) -> list[Reference]:
        """Those that the model can read whole."""
        if not self.sources:
            raise UserError("There is no sentence pair in the dev set.")
        model = self.translator.model
        sources, cut = self.translator.read(self.sources)
        targets = model.tokenizer.encode_targets(self.targets)
        fitting = [
            Reference(source, target)
            for source, target, too_long in zip(sources, targets, cut, strict=True)
            if not too_long and len(target) <= (model.max_length or len(target))
        ]
        if not fitting:
            raise UserError("There is no sentence pair in the dev set that the model can read.")
        return fitting

    def score(self, search: SearchSettings) -> float:
        """How well it is translated with these settings."""
        translations = self.translator.translate(self.sources, **self.settings | asdict(search))
        return self.metric.scores({"system": translations}, self.targets, self.sources)["system"].value


def _grid(combiner: str, predictions: Predictions, largest_k: int) -> Grid:
    temperatures = temperatures_for(combiner, median_distance(predictions.neighbours), STEPS_PER_OCTAVE)
    k = sorted({*(choice for choice in K_CHOICES if choice < largest_k), largest_k})
    return Grid(combiner, k, temperatures, WEIGHTS)


def _likelihoods(
    predictions: Sequence[Predictions], grid: Grid, sure: float | None, quiet: bool
) -> NDArray[np.float64]:
    """(floors, sizes, k, temperatures, weights)"""
    with Progress("grid", len(grid) * len(predictions), "points", quiet=quiet) as progress:
        made = [log_likelihoods(each, grid, FLOORS, sure, progress.update).numpy() for each in predictions]
    return np.stack(made, axis=1)


def _at(grid: Grid, point: Point, search: SearchSettings) -> SearchSettings:
    temperature, weight = grid.temperatures[point.temperature], grid.weights[point.weight]
    return replace(search, k=grid.k[point.k], temperature=temperature, weight=weight)


def _sure(row: Row, base: Row, predictions: Predictions) -> tuple[SearchSettings, float] | None:
    """The settings with the least threshold that costs little, and their log-likelihood, if there is one."""
    own, enough = row.settings, row.log_likelihood - SURE_COST * (row.log_likelihood - base.log_likelihood)
    grid = Grid(own.combiner, [own.k], [own.temperature], [own.weight])
    for threshold in SURE_CHOICES:
        likelihood = log_likelihoods(predictions, grid, sure=threshold).item()
        if likelihood >= enough:
            return replace(own, sure=threshold), likelihood
    return None

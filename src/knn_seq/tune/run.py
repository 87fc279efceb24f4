from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.combine import Combiner
from knn_seq.errors import KnnSeqError
from knn_seq.likelihood import Grid, Predictions, Reference, log_likelihoods, median_distance, predict, temperatures_for
from knn_seq.metrics import METRICS, Metric
from knn_seq.runtime.progress import Progress
from knn_seq.settings import SearchSettings, with_value
from knn_seq.translator import Translator
from knn_seq.tune.candidates import FLOORS, Point, candidates
from knn_seq.tune.tuning import Row, Surface, Tuning

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from knn_seq.settings import TranslateOptions

K_CHOICES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LARGEST_K = 64
STEPS_PER_OCTAVE = 3
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(1, 20))
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
THRESHOLD_COST = 0.02  # of the likelihood gained over the model alone, that a confidence threshold may cost


def tune(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metric: str | Metric = "bleu",
    subset_sizes: Sequence[int | None] = (None,),
    largest_k: int = LARGEST_K,
    confirm: int = 8,
    find_confidence_threshold: bool = False,
    **options: Unpack[TranslateOptions],
) -> Tuning:
    """Find the k, temperature and weight that translate a dev set best.

    The dev set is read once under teacher forcing and searched once for the neighbours of every token.  From these the
    likelihood of the references is computed exactly at every point of a fine grid; the best few are decoded with.

    Args:
        translator: The translator.
        sources: The sentences of the dev set.
        references: Their translations.
        metric: What decides among the best few.
        subset_sizes: To try, for a retriever that has them; None: the one that the settings say.
        largest_k: The largest k to try.
        confirm: How many points to decode with.
        find_confidence_threshold: Find as well from what probability on the model may decide without a search, if from
            any.
        **options: What is tuned, and how is decoded: fields of `SearchSettings` and `DecodingSettings`.
    """
    given: Mapping[str, Any] = options
    search, decoder = translator.settings(given)[0], translator.decoder
    dev = _DevSet(translator, sources, references, METRICS.get(metric)() if isinstance(metric, str) else metric, given)
    sizes = [size or search.subset_size for size in subset_sizes]
    asked = replace(search, k=largest_k, weight=1.0, confidence_threshold=None)
    predictions = predict(decoder, dev.references(), [replace(asked, subset_size=size) for size in sizes], "search")
    if not any(each.neighbours.found.any() for each in predictions):
        raise KnnSeqError("Nothing was found for any token of the dev set: there is nothing to tune.")
    combiner = decoder.combiner(search)
    grid = _grid(search.combiner, predictions[0], largest_k)
    values = _likelihoods(predictions, combiner, grid, search.confidence_threshold)
    points = candidates(values, max(confirm, 1))
    with Progress("decode", len(points) + 1 + find_confidence_threshold, "setting") as progress:

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
        if find_confidence_threshold:
            found = _threshold(best, base, predictions[points[rows.index(best)].size], combiner)
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
        options: Mapping[str, Any],
    ) -> None:
        self.translator, self.metric, self.options = translator, metric, options
        self.sources, self.targets = list(sources), list(targets)

    def references(self) -> list[Reference]:
        """Those that the model can read completely."""
        if not self.sources:
            raise KnnSeqError("There is no sentence pair in the dev set.")
        model = self.translator.model
        sources, cut = self.translator.read(self.sources)
        targets = model.tokenizer.encode_targets(self.targets)
        fitting = [
            Reference(source, target)
            for source, target, too_long in zip(sources, targets, cut, strict=True)
            if not too_long and len(target) <= (model.max_length or len(target))
        ]
        if not fitting:
            raise KnnSeqError("There is no sentence pair in the dev set that the model can read.")
        return fitting

    def score(self, search: SearchSettings) -> float:
        """How well it is translated with these settings."""
        options: dict[str, Any] = {**self.options, **with_value(search)}
        translations = self.translator.translate(self.sources, **options)
        return self.metric.scores({"system": translations}, self.targets, self.sources)["system"].value


def _grid(combiner: str, predictions: Predictions, largest_k: int) -> Grid:
    temperatures = temperatures_for(combiner, median_distance(predictions.neighbours), STEPS_PER_OCTAVE)
    k = sorted({*(choice for choice in K_CHOICES if choice < largest_k), largest_k})
    return Grid(k, temperatures, WEIGHTS)


def _likelihoods(
    predictions: Sequence[Predictions], combiner: Combiner, grid: Grid, confidence_threshold: float | None
) -> NDArray[np.float64]:
    """(floors, sizes, k, temperatures, weights)"""
    with Progress("grid", len(grid) * len(predictions), "point") as progress:
        made = [
            log_likelihoods(each, combiner, grid, FLOORS, confidence_threshold, progress.update).numpy()
            for each in predictions
        ]
    return np.stack(made, axis=1)


def _at(grid: Grid, point: Point, search: SearchSettings) -> SearchSettings:
    temperature, weight = grid.temperatures[point.temperature], grid.weights[point.weight]
    return replace(search, k=grid.k[point.k], temperature=temperature, weight=weight)


def _threshold(
    row: Row, base: Row, predictions: Predictions, combiner: Combiner
) -> tuple[SearchSettings, float] | None:
    """The settings with the least threshold that costs little, and their log-likelihood, if there is one."""
    own, enough = row.settings, row.log_likelihood - THRESHOLD_COST * (row.log_likelihood - base.log_likelihood)
    grid = Grid([own.k], [own.temperature], [own.weight])
    for threshold in THRESHOLDS:
        likelihood = log_likelihoods(predictions, combiner, grid, confidence_threshold=threshold).item()
        if likelihood >= enough:
            return replace(own, confidence_threshold=threshold), likelihood
    return None

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.combine import Combiner, has_own_temperature
from knn_seq.errors import KnnSeqError
from knn_seq.likelihood import Grid, Predictions, log_likelihoods, median_distance, predict, temperatures_for
from knn_seq.metrics import METRICS, Metric
from knn_seq.runtime.progress import Progress
from knn_seq.settings import SearchSettings, with_value
from knn_seq.translator import Translator
from knn_seq.tune.candidates import FLOORS, Point, candidates
from knn_seq.tune.tuning import Row, Surface, Tuning, rank

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from knn_seq.settings import TranslateOptions

K_CHOICES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LARGEST_K = 64
STEPS_PER_OCTAVE = 3
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(1, 20))


def tune(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metric: str | Metric = "bleu",
    subset_sizes: Sequence[int | None] = (None,),
    largest_k: int = LARGEST_K,
    confirm: int = 8,
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
        largest_k: The largest k to try; a trained combiner is tried up to its own.
        confirm: How many points to decode with.
        **options: What is tuned, and how is decoded: fields of `SearchSettings` and `DecodingSettings`.
    """
    [tuning] = tune_combiners(
        translator,
        sources,
        references,
        [translator.settings(options)[0].combiner],
        metric=metric,
        subset_sizes=subset_sizes,
        largest_k=largest_k,
        confirm=confirm,
        **options,
    )
    return tuning


def tune_combiners(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    combiners: Sequence[str],
    *,
    metric: str | Metric = "bleu",
    subset_sizes: Sequence[int | None] = (None,),
    largest_k: int = LARGEST_K,
    confirm: int = 8,
    **options: Unpack[TranslateOptions],
) -> list[Tuning]:
    """Tune several combiners as `tune` does one, from the same search.

    Args:
        translator: The translator.
        sources: The sentences of the dev set.
        references: Their translations.
        combiners: The names of the combiners; options of a combiner are the first one's.
        metric: What decides among the best few.
        subset_sizes: To try, for a retriever that has them; None: the one that the settings say.
        largest_k: The largest k to try.
        confirm: How many points to decode with, for each combiner.
        **options: What else is tuned, and how is decoded.

    Returns:
        What was found for each combiner; `best_tuning` says which is best.
    """
    given: Mapping[str, Any] = options
    decoder = translator.decoder
    own = [dict(given) | {"combiner": name} for name in combiners]
    own[1:] = [{n: value for n, value in each.items() if n != "combiner_options"} for each in own[1:]]
    searches = [translator.settings(each)[0] for each in own]
    opened = [decoder.combiner(search) for search in searches]  # what is missing is said before the search
    sizes = [size or searches[0].subset_size for size in subset_sizes]
    asked = replace(searches[0], k=largest_k, weight=1.0, skip=None, pointers=None)
    predictions = predict(
        decoder,
        translator.references(sources, references, searches[0]),
        [replace(asked, subset_size=size) for size in sizes],
        "search",
        max(combiner.best_log_probs for combiner in opened),
    )
    if not any(each.neighbours.found.any() for each in predictions):
        raise KnnSeqError("Nothing was found for any token of the dev set: there is nothing to tune.")
    dev = _DevSet(translator, sources, references, METRICS.get(metric)() if isinstance(metric, str) else metric)
    base = Row(
        replace(searches[0], weight=0.0),
        predictions[0].log_probs.double().mean().item(),
        dev.score(replace(searches[0], weight=0.0), own[0]),
    )
    return [
        _Tuner(dev, search, combiner, predictions, sizes, base, named).tuned(largest_k, confirm)
        for search, combiner, named in zip(searches, opened, own, strict=True)
    ]


class _Tuner:
    """Tunes one combiner, from what was found for all."""

    def __init__(
        self,
        dev: _DevSet,
        search: SearchSettings,
        combiner: Combiner,
        predictions: Sequence[Predictions],
        sizes: Sequence[int | None],
        base: Row,
        options: Mapping[str, Any],
    ) -> None:
        self.dev, self.search, self.combiner, self.options = dev, search, combiner, options
        self.predictions = [_seen(each, combiner) for each in predictions]
        self.sizes, self.base = sizes, base

    def tuned(self, largest_k: int, confirm: int) -> Tuning:
        search, sizes = self.search, self.sizes
        grid = _grid(search.combiner, self.combiner, self.predictions[0], largest_k)
        values = _likelihoods(self.predictions, self.combiner, grid)
        points = candidates(values, max(confirm, 1))
        with Progress(f"decode with {search.combiner}", len(points), "setting") as progress:

            def decoded(chosen: SearchSettings, log_likelihood: float) -> Row:
                row = Row(chosen, log_likelihood, self.dev.score(chosen, self.options))
                progress.update(1)
                return row

            rows = [
                decoded(_at(grid, point, replace(search, subset_size=sizes[point.size])), float(values[(0, *point)]))
                for point in points
            ]
            best = max(rows, key=rank)
        surfaces = [Surface(grid, size, values[0, number]) for number, size in enumerate(sizes)]
        return Tuning(self.dev.metric.name, len(self.predictions[0]), surfaces, self.base, rows, best)


class _DevSet:
    """Sentences with their references, as the decoder needs them."""

    def __init__(
        self,
        translator: Translator,
        sources: Sequence[str],
        targets: Sequence[str],
        metric: Metric,
    ) -> None:
        self.translator, self.metric = translator, metric
        self.sources, self.targets = list(sources), list(targets)

    def score(self, search: SearchSettings, options: Mapping[str, Any]) -> float:
        """How well it is translated with these settings, and these options of decoding."""
        together: dict[str, Any] = {**options, **with_value(search)}
        translations = self.translator.translate(self.sources, **together)
        return self.metric.scores({"system": translations}, self.targets, self.sources)["system"].value


def _grid(name: str, combiner: Combiner, predictions: Predictions, largest_k: int) -> Grid:
    largest_k = min(largest_k, combiner.largest_k or largest_k)
    temperatures = temperatures_for(name, median_distance(predictions.neighbours), STEPS_PER_OCTAVE)
    k = sorted({*(choice for choice in K_CHOICES if choice < largest_k), largest_k})
    # A combiner with a λ of its own may have all of it.
    return Grid(k, temperatures, (*WEIGHTS, 1.0) if has_own_temperature(name) else WEIGHTS)


def _seen(predictions: Predictions, combiner: Combiner) -> Predictions:
    """What one combiner looks at, of what was kept for several."""
    inputs = predictions.inputs
    best = inputs.best_log_probs[:, : combiner.best_log_probs]
    return replace(predictions, inputs=replace(inputs, best_log_probs=best))


def _likelihoods(predictions: Sequence[Predictions], combiner: Combiner, grid: Grid) -> NDArray[np.float64]:
    """(floors, sizes, k, temperatures, weights)"""
    with Progress("grid", len(grid) * len(predictions), "point") as progress:
        made = [log_likelihoods(each, combiner, grid, FLOORS, progress.update).numpy() for each in predictions]
    return np.stack(made, axis=1)


def _at(grid: Grid, point: Point, search: SearchSettings) -> SearchSettings:
    temperature, weight = grid.temperatures[point.temperature], grid.weights[point.weight]
    return replace(search, k=grid.k[point.k], temperature=temperature, weight=weight)

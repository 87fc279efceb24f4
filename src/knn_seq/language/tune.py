"""Settings under which a text is most likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np
import torch
from torch import Tensor

from knn_seq.combine import Combiner, has_own_temperature
from knn_seq.decoding import KnnDecoder
from knn_seq.errors import KnnSeqError
from knn_seq.language.text import Text
from knn_seq.likelihood import Grid, log_likelihoods, median_distance, predict_batches, temperatures_for
from knn_seq.runtime.progress import Progress
from knn_seq.settings import SearchSettings

K_CHOICES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LARGEST_K = 512
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(1, 20))
STEPS_PER_OCTAVE = 3


@dataclass(frozen=True)
class TunedText:
    """The best settings of one combiner for a text."""

    settings: SearchSettings
    perplexity: float
    base_perplexity: float  # of the model alone


def tune_text(
    decoder: KnnDecoder, text: Text, settings: Sequence[SearchSettings], largest_k: int = LARGEST_K
) -> list[TunedText]:
    """k, temperature and weight under which a text is most likely, for combiners that share one search, best first.

    Args:
        decoder: The model, and what it searches.
        text: The text.
        settings: One for each combiner, with the same retriever and index.
        largest_k: To try.
    """
    opened = [decoder.combiner(each) for each in settings]
    asked = replace(settings[0], k=largest_k, weight=1.0, skip=None, pointers=None)
    most = max(each.best_log_probs for each in opened)
    grids: list[Grid] = []
    totals: list[Tensor] = []  # of log p, (k, temperatures, weights) of each grid
    base, something = 0.0, False
    with Progress("search", text.tokens, "token") as progress:
        for _, [found] in predict_batches(decoder, text.references, [asked], most):
            if not grids:
                usual = median_distance(found.neighbours)
                grids = [_grid(*each, usual, largest_k) for each in zip(settings, opened, strict=True)]
                totals = [torch.zeros((), dtype=torch.float64)] * len(grids)
            for place, (combiner, grid) in enumerate(zip(opened, grids, strict=True)):
                best = found.inputs.best_log_probs[:, : combiner.best_log_probs]
                each = replace(found, inputs=replace(found.inputs, best_log_probs=best))
                totals[place] = totals[place] + log_likelihoods(each, combiner, grid)[0] * len(found)
            base += found.log_probs.double().sum().item()
            something |= bool(found.neighbours.found.any())
            progress.update(len(found))
    if not something:
        raise KnnSeqError("Nothing was found for any token of the text: there is nothing to tune.")
    tuned = []
    for own, grid, total in zip(settings, grids, totals, strict=True):
        k, temperature, weight = map(int, np.unravel_index(int(total.argmax()), tuple(total.shape)))
        chosen = replace(
            own, k=grid.k[k], temperature=grid.temperatures[temperature], weight=grid.weights[weight], pointers=None
        )
        tuned.append(TunedText(chosen, exp(-total.max().item() / text.tokens), exp(-base / text.tokens)))
    return sorted(tuned, key=lambda one: one.perplexity)


def _grid(settings: SearchSettings, combiner: Combiner, usual_distance: float, largest_k: int) -> Grid:
    name, most = settings.combiner, min(largest_k, combiner.largest_k or largest_k)
    return Grid(
        sorted({*(k for k in K_CHOICES if k < most), most}),
        temperatures_for(name, usual_distance, STEPS_PER_OCTAVE),
        (*WEIGHTS, 1.0) if has_own_temperature(name) else WEIGHTS,
    )

"""Settings under which a text is most likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np

from knn_seq.combine import has_own_temperature
from knn_seq.decoding import KnnDecoder
from knn_seq.errors import KnnSeqError
from knn_seq.language.text import Text
from knn_seq.likelihood import Grid, log_likelihoods, median_distance, predict, temperatures_for
from knn_seq.settings import SearchSettings

K_CHOICES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(1, 20))
STEPS_PER_OCTAVE = 3


@dataclass(frozen=True)
class TunedText:
    """The best settings of one combiner for a text."""

    settings: SearchSettings
    perplexity: float
    base_perplexity: float  # of the model alone


def tune_text(
    decoder: KnnDecoder, text: Text, settings: Sequence[SearchSettings], largest_k: int = 64
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
    [found] = predict(decoder, text.references, [asked], "search", max(each.best_log_probs for each in opened))
    if not found.neighbours.found.any():
        raise KnnSeqError("Nothing was found for any token of the text: there is nothing to tune.")
    base = exp(-found.log_probs.double().mean().item())
    tuned = []
    for each, combiner in zip(settings, opened, strict=True):
        own = has_own_temperature(each.combiner)
        most = min(largest_k, combiner.largest_k or largest_k)
        grid = Grid(
            sorted({*(k for k in K_CHOICES if k < most), most}),
            temperatures_for(each.combiner, median_distance(found.neighbours), STEPS_PER_OCTAVE),
            (*WEIGHTS, 1.0) if own else WEIGHTS,
        )
        inputs = replace(found.inputs, best_log_probs=found.inputs.best_log_probs[:, : combiner.best_log_probs])
        [values] = log_likelihoods(replace(found, inputs=inputs), combiner, grid)
        k, temperature, weight = map(int, np.unravel_index(int(values.argmax()), tuple(values.shape)))
        best = replace(
            each, k=grid.k[k], temperature=grid.temperatures[temperature], weight=grid.weights[weight], pointers=None
        )
        tuned.append(TunedText(best, exp(-values.max().item()), base))
    return sorted(tuned, key=lambda one: one.perplexity)

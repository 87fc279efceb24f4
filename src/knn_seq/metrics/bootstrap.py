"""Paired bootstrap: would the difference of two systems hold on another test set of the same kind?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAMPLES, SEED = 1000, 12345  # sacreBLEU's own


def paired_bootstrap(
    first: ArrayLike,
    other: ArrayLike,
    samples: int = SAMPLES,
    seed: int = SEED,
    score: Callable[[NDArray[Any]], float] | None = None,
) -> float:
    """The probability that two systems differ as much as they do by chance, computed as sacreBLEU does.

    Both are scored on test sets drawn with replacement from the sentences of the real one, the same for both.

    Args:
        first: Of one system, the score of each sentence, (sentences,), or what scores are computed from,
            (sentences, statistics).
        other: The same of the other.
        samples: How many test sets are drawn.
        seed: Of the drawing.
        score: The score of a test set from the sum of its sentences' statistics, (statistics,); None: the mean.
    """
    ours, theirs = (np.asarray(values, np.float64).reshape(np.shape(values)[0], -1) for values in (first, other))
    sentences = len(ours)
    score = score or (lambda sums: sums[0] / sentences)
    difference = abs(score(ours.sum(axis=0)) - score(theirs.sum(axis=0)))
    # No difference is never significant, and one sentence, drawn over and over, shows nothing.
    if difference == 0 or sentences < 2:
        return 1.0
    drawn = np.random.default_rng(seed).choice(sentences, size=(samples, sentences))
    times = np.stack([np.bincount(sample, minlength=sentences) for sample in drawn]).astype(np.float64)
    scored = (np.array([score(sums) for sums in times @ statistics]) for statistics in (ours, theirs))
    differences = np.abs(np.subtract(*scored))
    by_chance = int(np.count_nonzero(differences - differences.mean() > difference))
    return (by_chance + 1) / (samples + 1)

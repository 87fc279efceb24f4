"""The last step: defaults for k, temperature and weight that fit what is searched.

Sentences of it are held out in turn: each of their tokens is predicted from all other sentences, and the settings under
which these predictions are most likely are the best guess for new sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from knn_seq.likelihood import Grid, Reference, log_likelihoods, median_distance, predict, temperatures_for
from knn_seq.likelihood.predictions import Locate
from knn_seq.models import Model, Source
from knn_seq.retrieve import RETRIEVERS, Retriever
from knn_seq.settings import BuildSettings, SearchSettings
from knn_seq.storage import DatastoreFolder

K_CHOICES = (4, 8, 16, 32, 64)
WEIGHT_CHOICES = tuple(round(0.05 * step, 2) for step in range(2, 19))
ENOUGH = 0.005  # a smaller k, which is faster, is taken if it costs less than this log-likelihood per token


def calibrate(
    folder: DatastoreFolder,
    model: Model,
    settings: BuildSettings,
    quiet: bool,
    search: SearchSettings | None = None,
) -> dict[str, Any]:
    """A datastore's defaults, with the distances they were measured at.

    Args:
        folder: The datastore.
        model: The model of its keys.
        settings: How many sentences are held out.
        quiet: Show no progress.
        search: The retriever and the combiner that the defaults are for, and how it searches.
    """
    search = search or SearchSettings()
    defaults = {name: getattr(search, name) for name in ("retriever", "combiner", "k", "temperature", "weight")}
    if len(folder.values) < 2 or not settings.calibration_sentences:
        return defaults
    chosen = np.random.default_rng(0).permutation(len(folder.values))[: settings.calibration_sentences]
    sample = [
        Reference(Source(folder.texts[row][0], folder.sources[row].tolist()), folder.values[row].tolist(), row)
        for row in chosen.tolist()
    ]
    retriever = RETRIEVERS.get(search.retriever).open(folder, search, model)
    return defaults | most_likely(retriever, folder.locate, model, sample, search.combiner, quiet)


def most_likely(
    retriever: Retriever,
    locate: Locate,
    model: Model,
    sample: Sequence[Reference],
    combiner: str,
    quiet: bool = False,
    k_choices: Sequence[int] = K_CHOICES,
    floor: float = 0.0,
) -> dict[str, Any]:
    """k, temperature and weight under which the tokens of a sample are most likely; empty if none has neighbours.

    Args:
        retriever: Finds neighbours, also in the sentence itself; those are dropped.
        locate: The sentence of each entry.
        model: Makes the queries.
        sample: The sentences.
        combiner: The combiner's name.
        quiet: Show no progress.
        k_choices: What k may be.
        floor: Tokens less likely than this all count as if they were this likely: a search does not write them anyway,
            and to lift them a little costs certainty where neighbours are right.
    """
    made = predict(retriever, model, sample, max(k_choices), locate=locate, label="defaults", quiet=quiet)
    if not made or not made[0].neighbours.found.any():
        return {}
    predictions = made[0].rows(~made[0].neighbours.empty)
    median = median_distance(predictions.neighbours)
    grid = Grid(combiner, k_choices, temperatures_for(combiner, median), WEIGHT_CHOICES)
    [values] = log_likelihoods(predictions, grid, [floor])
    by_k = values.flatten(1).amax(dim=1)
    place = int((by_k >= by_k.max() - ENOUGH).nonzero()[0])  # k_choices are in order: the smallest that is good enough
    temperature, weight = divmod(int(values[place].argmax()), len(WEIGHT_CHOICES))
    return {
        "k": k_choices[place],
        "temperature": grid.temperatures[temperature],
        "weight": WEIGHT_CHOICES[weight],
        "median_distance": round(median, 4),
    }

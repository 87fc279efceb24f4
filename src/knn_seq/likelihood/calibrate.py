"""Defaults for k, temperature and weight that fit what is searched, without a dev set.

Sentences of it are held out in turn: each of their tokens is predicted from all other sentences, and the settings under
which these predictions are most likely are the best guess for new sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.combine import Combiner
from knn_seq.decoding import KnnDecoder
from knn_seq.likelihood.predictions import Predictions, Reference, predict
from knn_seq.likelihood.surface import Grid, log_likelihoods, median_distance, temperatures_for
from knn_seq.models import Model, Source
from knn_seq.settings import SearchSettings

K_CHOICES = (4, 8, 16, 32, 64)
# Where a translation has few tokens to choose from, a text has many, and neighbours that know most of them.
TEXT_K_CHOICES = (*K_CHOICES, 128, 256, 512)
WEIGHT_CHOICES = tuple(round(0.05 * step, 2) for step in range(2, 19))
ENOUGH = 0.005  # a smaller k, which is faster, is taken if it costs less than this log-likelihood per token
# To score a token takes as long as the keys of three, mostly for the product with the vocabulary.  A 16th of the tokens
# is a fifth of the keys' time; a thousand tokens choose settings as likely as those of 8,000 to within 0.004 a token.
SAMPLED_SHARE = 16
FEWEST_TOKENS = 1024
# A text's windows are long, and all k neighbours of a token are kept: some tokens of each of some windows are enough.
WINDOW_TOKENS, TEXT_TOKENS = 128, 8192


def calibrate(
    decoder: KnnDecoder,
    settings: SearchSettings,
    sentences: int,
    k_choices: Sequence[int] | None = None,
    floor: float = 0.0,
) -> dict[str, Any]:
    """k, temperature and weight for a retriever and a combiner, and the distances they were measured at.

    Args:
        decoder: The model, and what it searches.
        settings: The retriever and the combiner, and how is searched.
        sentences: How many of those that are searched are held out at most; fewer if there are few, so that this does
            not take longer than computing their keys.
        k_choices: What k may be, ascending; None: what is usual for the model.
        floor: Tokens less likely than this all count as if they were this likely: a search does not write them anyway,
            and to lift them a little costs certainty where neighbours are right.

    Returns:
        Fields of `SearchSettings`; none if no token has neighbours.
    """
    k_choices = k_choices or usual_k(decoder.model)
    references = held_out(decoder, sentences)
    asked = replace(settings, k=max(k_choices), weight=1.0, skip=None, pointers=None)
    made = predict(decoder, references, [asked], label="defaults")
    if not made:
        return {}
    return most_likely(made[0], decoder.combiner(settings), settings.combiner, k_choices, floor)


def most_likely(
    predictions: Predictions,
    combiner: Combiner,
    name: str,
    k_choices: Sequence[int] = K_CHOICES,
    floor: float = 0.0,
) -> dict[str, Any]:
    """The settings under which references are most likely; see `calibrate`.

    Args:
        predictions: What was retrieved, with at least the largest k.
        combiner: Weighs the neighbours.
        name: What it is called.
        k_choices: What k may be, ascending.
        floor: See `calibrate`.
    """
    if not predictions.neighbours.found.any():
        return {}
    predictions = predictions.rows(~predictions.neighbours.empty)
    median = median_distance(predictions.neighbours)
    grid = Grid(k_choices, temperatures_for(name, median), WEIGHT_CHOICES)
    [values] = log_likelihoods(predictions, combiner, grid, [floor])
    by_k = values.flatten(1).amax(dim=1)
    place = int((by_k >= by_k.max() - ENOUGH).nonzero()[0])  # the smallest k that is good enough
    temperature, weight = divmod(int(values[place].argmax()), len(WEIGHT_CHOICES))
    return {
        "k": k_choices[place],
        "temperature": grid.temperatures[temperature],
        "weight": WEIGHT_CHOICES[weight],
        "median_distance": round(median, 4),
    }


def usual_k(model: Model) -> Sequence[int]:
    """The numbers of neighbours that are worth trying with a model, ascending."""
    return TEXT_K_CHOICES if model.tokenizer.continues_text else K_CHOICES


def held_out(decoder: KnnDecoder, sentences: int, seed: int = 0) -> list[Reference]:
    """A random sample of what is searched, of those that the model can read completely."""
    store, model = decoder.store, decoder.model
    live = store.live_sentences()
    total = len(live)
    if total < 2:
        return []
    chosen = live[np.random.default_rng(seed).permutation(total)[:sentences]].tolist()
    pairs = store.token_pairs(chosen, model.tokenizer)
    enough = sample_size(np.array([len(pair.target) for pair in pairs], np.int64), total)
    found = [
        Reference(Source(store.texts[number][0], pair.source), pair.target, number)
        for number, pair in zip(chosen[:enough], pairs, strict=False)
        if model.fits(*map(len, pair))
    ]
    return some_of_text(found) if model.tokenizer.continues_text else found


def some_of_text(windows: Sequence[Reference]) -> list[Reference]:
    """The first tokens of each of the first windows, as many as are enough to choose settings."""
    cut = [window._replace(target=window.target[:WINDOW_TOKENS]) for window in windows]
    before = np.cumsum([0, *(len(window.target) for window in cut)])[:-1]
    return [window for window, tokens in zip(cut, before, strict=True) if tokens < TEXT_TOKENS]


def sample_size(lengths: NDArray[np.int64], total: int) -> int:
    """How many sentences of a random sample are enough, and not too many for what is searched.

    Args:
        lengths: The target tokens of each sentence of the sample, (sentences,).
        total: How many sentences are searched.
    """
    if not len(lengths):
        return 0
    limit = max(FEWEST_TOKENS, lengths.mean() * total / SAMPLED_SHARE)
    return min(len(lengths), int(np.searchsorted(lengths.cumsum(), limit)) + 1)

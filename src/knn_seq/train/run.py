from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from knn_seq.combine import COMBINERS
from knn_seq.combine.trained import NetworkShape, TrainedCombiner
from knn_seq.decoding import KnnDecoder
from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.likelihood import Reference, most_likely, usual_k
from knn_seq.settings import SearchSettings, override
from knn_seq.train.examples import Examples, dev_examples, own_examples
from knn_seq.train.fit import fit, log_likelihood
from knn_seq.train.skip import TrainedSkip, train_skip

log = logging.getLogger(__name__)

LARGEST_K = 32  # neighbours that a combiner learns to weigh, unless `fixed` wants more of them for a text
SENTENCES = 768  # of the datastore, that it learns from


@dataclass(frozen=True)
class Training:
    """A trained combiner, what it was trained on, and what that brought."""

    settings: SearchSettings  # to translate with it
    combiner: TrainedCombiner
    tokens: int
    general_sentences: int
    seed: int
    seconds: float  # of training, without the search
    log_likelihoods: dict[str, float]  # of a held-out token: of the model alone, with `fixed`, with this combiner
    skip: TrainedSkip | None  # what skips searches; a translation memory has nothing of the kind
    fixed: dict[str, Any]  # the settings of `fixed` under which held-out tokens are most likely

    @property
    def better_than_fixed(self) -> bool:
        """Whether held-out tokens are more likely with it than with the best fixed settings."""
        return self.log_likelihoods[self.settings.combiner] > self.log_likelihoods["fixed"]


def examples_for(
    decoder: KnnDecoder,
    settings: SearchSettings,
    *,
    dev: Sequence[Reference] | None = None,
    general: Sequence[str] = (),
    sentences: int = SENTENCES,
    k: int | None = None,
    seed: int = 0,
) -> Examples:
    """One search, from which any number of combiners can be trained.

    Args:
        decoder: The model, and what it searches.
        settings: The retriever and the index.
        dev: Sentences with references; None: the searched sentences, each predicted from all others.
        general: Sentences of other domains, which neighbours must not change.
        sentences: How many searched sentences are predicted at most.
        k: The most neighbours of a token; None: what is usual for the model.
        seed: Of the choice of sentences.
    """
    asked = replace(
        settings, k=max(k or LARGEST_K, *usual_k(decoder.model)), weight=1.0, skip=None, pointers=None, combiner="fixed"
    )
    asked = replace(asked, combiner_options={})
    if dev is None:
        return own_examples(decoder, asked, sentences, general, seed)
    return dev_examples(decoder, asked, dev, sentences, general, seed)


def train(
    examples: Examples, settings: SearchSettings, combiner: str = "learned", k: int | None = None, seed: int = 0
) -> Training:
    """Train a combiner.

    Args:
        examples: What it learns from.
        settings: The retriever and the index that found the neighbours.
        combiner: Its name.
        k: The most neighbours that it can weigh; None: 32 or, for a text, as many as `fixed` is best with.
        seed: Of its first weights and of the order of examples.
    """
    kind = require_trainable(combiner)
    if not examples.usable:
        raise KnnSeqError("Nothing was found for any token: there is nothing to train a combiner with.")
    first = examples.train[0].predictions
    fixed = most_likely(first, COMBINERS.get("fixed")(), "fixed", examples.k_choices)
    as_fixed = override(SearchSettings(), fixed)
    if k is None:
        k = max(LARGEST_K, as_fixed.k) if examples.of_text else LARGEST_K
    shape = NetworkShape.fitting(first.neighbours.nearest(k), first.inputs.queries.shape[1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = kind(shape)
        if examples.of_text:
            made.begin_with(as_fixed)
        made.attach(examples.store)
        start = time.perf_counter()
        fit(made, examples, seed)
        seconds = time.perf_counter() - start
    skip = train_skip(examples, made, seed)
    return Training(
        settings=replace(settings, combiner=combiner, k=k, weight=1.0),
        combiner=made,
        tokens=examples.tokens,
        general_sentences=examples.general_sentences,
        seed=seed,
        seconds=seconds,
        log_likelihoods={
            "model": log_likelihood(examples.judged, None),
            "fixed": log_likelihood(examples.judged, COMBINERS.get("fixed")(), as_fixed),
            combiner: log_likelihood(examples.judged, made),
        },
        skip=skip,
        fixed=fixed,
    )


def require_trainable(combiner: str) -> type[TrainedCombiner]:
    """The class of a combiner that is trained; an `InvalidSetting` if it is not."""
    kind = COMBINERS.get(combiner)
    if not issubclass(kind, TrainedCombiner):
        raise InvalidSetting(f"The combiner '{combiner}' has nothing to train.")
    return kind

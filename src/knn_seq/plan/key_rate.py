"""How fast a model computes keys on this machine."""

from __future__ import annotations

import time

import numpy as np

from knn_seq.models import Model, TokenPair
from knn_seq.settings import BuildSettings

LENGTH = 25  # tokens of a sentence
TEXT = "4 5 6 7 8 9 10 11 12 13 14 15"  # every tokenizer knows some token for digits


def measure_key_rate(model: Model, seconds: float = 3.0) -> float:
    """Keys that a model computes in a second, measured for about so many on batches of random sentence pairs."""
    tokenizer, random = model.tokenizer, np.random.default_rng(0)
    sources, targets = tokenizer.encode_sources([TEXT])[0], tokenizer.encode_targets([TEXT])[0]
    end = targets[-1]
    pairs = [
        TokenPair(random.choice(sources, LENGTH).tolist(), [*random.choice(targets, LENGTH - 1).tolist(), end])
        for _ in range(max(BuildSettings().batch_tokens // (2 * LENGTH), 1))
    ]
    model.keys(pairs)  # the first batch is slower
    done, start = 0, time.perf_counter()
    while done == 0 or time.perf_counter() - start < seconds:
        done += len(model.keys(pairs).cpu())
    return done / (time.perf_counter() - start)

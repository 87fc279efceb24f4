"""The sentences of a datastore, cut into shards that workers share."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from knn_seq.storage import Ragged

SHARDS = 32  # of a corpus of medium size: enough for many workers, and for the last ones to end together
LEAST_TOKENS, MOST_TOKENS = 1 << 17, 1 << 22  # enough sentences to be sorted by length; some minutes of work


class Shard(NamedTuple):
    """Consecutive sentences."""

    number: int
    sentences: range
    entries: range  # of the datastore: their target tokens


def cut_shards(targets: Ragged, tokens: int | None = None) -> list[Shard]:
    """Shards of about equally many target tokens, which depend on the corpus alone, not on who works on them.

    Args:
        targets: The target tokens of each sentence.
        tokens: About how many a shard has; None: chosen by the size of the corpus.
    """
    offsets, total = targets.offsets, len(targets.items)
    size = tokens or min(max(total // SHARDS, LEAST_TOKENS), MOST_TOKENS)
    count = max(round(total / size), 1)
    wanted = np.arange(1, count) * total / count
    after = np.searchsorted(offsets, wanted)  # the sentence's end or its beginning, whichever is nearer
    bounds = np.where(offsets[after] - wanted > wanted - offsets[after - 1], after - 1, after)
    edges = np.unique(np.concatenate([[0], bounds, [len(targets)]])).tolist()
    return [
        Shard(number, range(start, stop), range(int(offsets[start]), int(offsets[stop])))
        for number, (start, stop) in enumerate(pairwise(edges))
    ]

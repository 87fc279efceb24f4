"""The sentence pairs of a datastore, grouped so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from knn_seq.build.shards import Shard, cut_shards
from knn_seq.models.batching import length_batches
from knn_seq.storage import Ragged


def plan_batches(
    sources: Ragged, targets: Ragged, batch_tokens: int, shards: Sequence[Shard] | None = None
) -> Iterator[NDArray[np.int64]]:
    """Sentence numbers of each batch, every sentence once; the same inputs give the same batches.

    Sentences are sorted by length within their shard: enough of them to pad little, few enough to write keys close
    together.  See `length_batches` for what a batch may cost.

    Args:
        sources: The source tokens of each sentence.
        targets: The target tokens of each sentence.
        batch_tokens: What a batch may cost.
        shards: Those whose sentences are wanted; None: all.
    """
    for shard in cut_shards(targets) if shards is None else shards:
        start, stop = shard.sentences.start, shard.sentences.stop
        for batch in length_batches(sources.lengths(start, stop), targets.lengths(start, stop), batch_tokens):
            yield start + batch

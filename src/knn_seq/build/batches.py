"""The sentence pairs of a datastore, grouped so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from knn_seq.models.batching import length_batches
from knn_seq.storage import Ragged

WINDOW = 1 << 17  # sentences that are sorted together: enough to pad little, few enough to write keys close together


def plan_batches(sources: Ragged, targets: Ragged, batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Sentence numbers of each batch, every sentence once; the same inputs give the same batches.

    See `length_batches` for what a batch may cost.
    """
    for start in range(0, len(targets), WINDOW):
        stop = start + WINDOW
        for batch in length_batches(sources.lengths(start, stop), targets.lengths(start, stop), batch_tokens):
            yield start + batch

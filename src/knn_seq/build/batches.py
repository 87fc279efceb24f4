"""Sentence pairs grouped so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from knn_seq.storage import Ragged

WINDOW = 1 << 17  # sentences that are sorted together: enough to pad little, few enough to write keys close together


def plan_batches(sources: Ragged, targets: Ragged, batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Sentence numbers of each batch, every sentence once; the same inputs give the same batches.

    A batch costs what its padded rectangles hold, sentences × (longest source + longest target), at most
    `batch_tokens`; a sentence pair that is larger is a batch alone.
    """
    for start in range(0, len(targets), WINDOW):
        source_lengths = sources.lengths(start, start + WINDOW)
        target_lengths = targets.lengths(start, start + WINDOW)
        order = np.lexsort((target_lengths, source_lengths))[::-1]  # the longest first: memory shows its peak at once
        first = 0
        while first < len(order):
            count = _fitting(source_lengths[order[first:]], target_lengths[order[first:]], batch_tokens)
            yield start + order[first : first + count]
            first += count


def _fitting(sources: NDArray[np.int64], targets: NDArray[np.int64], batch_tokens: int) -> int:
    head = slice(0, batch_tokens)  # no batch has more sentences than tokens
    width = np.maximum.accumulate(sources[head]) + np.maximum.accumulate(targets[head])
    cost = width * np.arange(1, len(width) + 1)
    return max(1, int(np.searchsorted(cost, batch_tokens, side="right")))

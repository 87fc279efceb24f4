"""Sequences of different lengths as one rectangle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def pad(
    sequences: Sequence[Sequence[int]], value: int, device: torch.device, left: bool = False
) -> tuple[Tensor, Tensor]:
    """The sequences padded to the longest, and the mask of what is real: both (batch, time) int64."""
    width = max(map(len, sequences))
    tokens = torch.full((len(sequences), width), value, dtype=torch.int64)
    mask = torch.zeros_like(tokens)
    for row, sequence in enumerate(sequences):
        place = slice(width - len(sequence), width) if left else slice(0, len(sequence))
        tokens[row, place] = torch.as_tensor(sequence, dtype=torch.int64)
        mask[row, place] = 1
    return tokens.to(device), mask.to(device)


def spans(starts: Sequence[int], lengths: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and column of every place in row i from column starts[i] on, lengths[i] long, row after row."""
    sizes = torch.tensor(lengths)
    rows = torch.repeat_interleave(torch.arange(len(lengths)), sizes)
    before = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    columns = torch.arange(len(rows)) - before + torch.repeat_interleave(torch.tensor(starts), sizes)
    return rows.to(device), columns.to(device)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over the real places of each row, (batch, width) float32, of states, (batch, time, width)."""
    weights = mask.unsqueeze(2).to(torch.float32)
    return (states.float() * weights).sum(dim=1) / weights.sum(dim=1)


def length_batches(
    sources: NDArray[np.int64], targets: NDArray[np.int64], batch_tokens: int
) -> Iterator[NDArray[np.int64]]:
    """Sentence pairs grouped so that little is padded: the numbers of each batch, every pair once.

    A batch costs what its padded rectangles hold, pairs × (longest source + longest target), at most `batch_tokens`;
    a pair that is larger is a batch alone.

    Args:
        sources: The length of each source, (pairs,).
        targets: The length of each target, (pairs,).
        batch_tokens: What a batch may cost.
    """
    order = np.lexsort((targets, sources))[::-1]  # the longest first: memory shows its peak at once
    first = 0
    while first < len(order):
        count = _fitting(sources[order[first:]], targets[order[first:]], batch_tokens)
        yield order[first : first + count]
        first += count


def _fitting(sources: NDArray[np.int64], targets: NDArray[np.int64], batch_tokens: int) -> int:
    head = slice(0, batch_tokens)  # no batch has more sentences than tokens
    width = np.maximum.accumulate(sources[head]) + np.maximum.accumulate(targets[head])
    cost = width * np.arange(1, len(width) + 1)
    return max(1, int(np.searchsorted(cost, batch_tokens, side="right")))

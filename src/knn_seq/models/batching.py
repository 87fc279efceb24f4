"""Sequences of different lengths as one rectangle."""

from __future__ import annotations

from collections.abc import Sequence

import torch
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

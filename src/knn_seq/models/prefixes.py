from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class PrefixRows:
    """Which row of the step before each row continues: a search cuts and copies its beams, sentences enter and leave.

    Rows with the same sentence and prefix are alike, so any of them will do.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], int] = {}

    def parents(self, sentences: Tensor, prefixes: Tensor) -> NDArray[np.int64]:
        """The row of the step before that had each row's prefix but for its last token, (rows,); -1: it begins here.

        Args:
            sentences: The sentence of each row, (rows,).
            prefixes: The tokens before each row, (rows, t); -1 behind those of rows that have fewer than others.
        """
        written, numbers = prefixes.cpu().numpy(), sentences.tolist()
        rows: dict[tuple[int, bytes], int] = {}
        parents = np.full(len(written), -1, np.int64)
        for row, (number, length) in enumerate(zip(numbers, (written >= 0).sum(axis=1).tolist(), strict=True)):
            if length:
                parents[row] = self._rows.get((number, written[row, : length - 1].tobytes()), -1)
            rows[number, written[row, :length].tobytes()] = row
        self._rows = rows
        return parents


def last_tokens(prefixes: Tensor) -> Tensor:
    """The token that each row was last continued with, (rows,), of prefixes, (rows, t); 0 where there is none."""
    if not prefixes.shape[1]:
        return torch.zeros(len(prefixes), dtype=torch.int64, device=prefixes.device)
    lengths = (prefixes >= 0).sum(dim=1, keepdim=True)
    return prefixes.gather(1, (lengths - 1).clamp(min=0)).squeeze(1).clamp(min=0)

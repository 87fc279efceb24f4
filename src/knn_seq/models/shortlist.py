"""A lexical shortlist: the only target tokens that a source can become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Shortlist:
    """For each source token the target tokens that it may become, and some that may come anywhere.

    Args:
        offsets: Where the target tokens of source token t begin, (source tokens + 1,); they end where those of the next
            begin.
        targets: Those of all source tokens, one behind the other.
        frequent: Target tokens that any source may become, the end of a sentence among them.
        size: Of the target vocabulary.
    """

    def __init__(
        self, offsets: NDArray[np.int64], targets: NDArray[np.int64], frequent: NDArray[np.int64], size: int
    ) -> None:
        self.offsets, self.targets, self.frequent, self.size = offsets, targets, frequent, size

    def of(self, source: Sequence[int], others: Sequence[int] = ()) -> Tensor:
        """The target tokens that a source may become, ascending, (n,) int64.

        Args:
            source: Its tokens.
            others: Target tokens that may come beside.
        """
        allowed = np.zeros(self.size, dtype=bool)
        allowed[self.frequent] = True
        if others:
            allowed[list(others)] = True
        for token in set(source):
            if 0 <= token < len(self.offsets) - 1:
                allowed[self.targets[self.offsets[token] : self.offsets[token + 1]]] = True
        return torch.from_numpy(allowed.nonzero()[0])


class Columns(NamedTuple):
    """The target tokens that any sentence of a batch may become, and which of them each may."""

    vocabulary: Tensor  # (n,) int64, ascending
    banned: Tensor  # (sentences, n) float32: what is added to a logit: 0, or minus infinity

    @classmethod
    def of(cls, shortlists: Sequence[Tensor], size: int) -> Columns:
        """Those of the shortlists of all sentences, ascending each; the complete vocabulary has a size."""
        place = torch.zeros(size, dtype=torch.int64)
        place[torch.cat(list(shortlists))] = 1
        vocabulary = place.nonzero().squeeze(1)
        place[vocabulary] = torch.arange(len(vocabulary))
        banned = torch.full((len(shortlists), len(vocabulary)), -torch.inf)
        for row, tokens in zip(banned, shortlists, strict=True):
            row[place[tokens]] = 0.0
        return cls(vocabulary, banned)

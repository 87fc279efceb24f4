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


class LimitedRows:
    """What the sentences of a batch may become, while they enter and leave.

    Args:
        shortlist: Limits each.
        rows_each: Rows of a sentence.
        device: Of the logits.
    """

    def __init__(self, shortlist: Shortlist, rows_each: int, device: torch.device) -> None:
        self.shortlist, self.rows_each, self.device = shortlist, rows_each, device
        self._lists: list[Tensor] = []  # of each sentence
        self.columns = Columns(torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, 0, device=device))

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """Add sentences behind all others."""
        self._lists += [self.shortlist.of(source) for source in sources]
        vocabulary, banned = Columns.of(self._lists, self.shortlist.size)
        self.columns = Columns(vocabulary.to(self.device), banned.to(self.device))

    def keep(self, sentences: Sequence[int]) -> None:
        """Drop all sentences but these, and have these in this order; the columns stay."""
        self._lists = [self._lists[number] for number in sentences]
        kept = torch.tensor(sentences, device=self.device)
        self.columns = self.columns._replace(banned=self.columns.banned.index_select(0, kept))

    def ban(self, logits: Tensor) -> Tensor:
        """Logits of the columns, (rows, n), in their place with minus infinity for what a row's sentence cannot be."""
        logits.view(len(self._lists), self.rows_each, -1).add_(self.columns.banned.unsqueeze(1))
        return logits


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

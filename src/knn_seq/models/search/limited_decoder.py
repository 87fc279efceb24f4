from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from knn_seq.models.search.decoder import DecoderStep, RowDecoder
from knn_seq.models.shortlist import LimitedRows, Shortlist


class LimitedDecoder(RowDecoder):
    """A decoder that computes the logits of all tokens, of which a shortlist leaves some: nothing gets faster by it.

    Args:
        decoder: Computes them.
        shortlist: Says which.
        device: Of the logits.
    """

    def __init__(self, decoder: RowDecoder, shortlist: Shortlist, device: torch.device) -> None:
        self.decoder, self.rows_each, self.joins = decoder, decoder.rows_each, decoder.joins
        self.vocabulary_size = shortlist.size
        self.limits = LimitedRows(shortlist, decoder.rows_each, device)
        self._logits = torch.empty(0)  # of the last step, (rows, vocabulary)

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """See `RowDecoder.enter`."""
        self.decoder.enter(sources)
        self.limits.enter(sources)

    def step(self, tokens: Tensor) -> DecoderStep:
        """See `RowDecoder.step`."""
        step = self.decoder.step(tokens)
        self._logits, vocabulary = step.logits, self.limits.columns.vocabulary
        logits = self.limits.ban(step.logits.index_select(1, vocabulary))
        return step._replace(logits=logits, vocabulary=vocabulary)

    def follow(self, parents: Tensor) -> None:
        """See `RowDecoder.follow`."""
        self.decoder.follow(parents)

    def keep(self, sentences: Sequence[int]) -> None:
        """See `RowDecoder.keep`."""
        self.decoder.keep(sentences)
        self.limits.keep(sentences)

    def logits_of(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """See `RowDecoder.logits_of`."""
        return self._logits[rows, tokens]

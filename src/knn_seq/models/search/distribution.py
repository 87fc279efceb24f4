from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from knn_seq.models.base import StepChanges
from knn_seq.models.log_probs import log_softmax

CHUNK = 128  # tokens whose largest log-probability is remembered


class Best(NamedTuple):
    """The most probable tokens of each row, best first."""

    log_probs: Tensor  # (rows, n)
    tokens: Tensor  # (rows, n)


class Distribution:
    """log p of every token, of which a few are looked for and a few are changed: no more passes over the vocabulary.

    The largest of each chunk of tokens is found in one pass.  The n best tokens of a row lie in the n chunks with the
    largest, and a token that changes concerns its own chunk.

    Args:
        logits: (rows, vocabulary), written over.
        vocabulary: The only tokens that can come, of which the logits are, ascending; None: all.
        size: Of the complete vocabulary, where only some can come.
    """

    stored: Tensor  # (rows, vocabulary): log p but for the shift of a row
    shift: Tensor | None  # (rows, 1)
    _largest: Tensor | None  # of each chunk, (rows, chunks)

    def __init__(self, logits: Tensor, vocabulary: Tensor | None = None, size: int | None = None) -> None:
        log_probs = log_softmax(logits.float())
        if vocabulary is not None and size is not None:
            some, log_probs = log_probs, log_probs.new_full((len(log_probs), size), -torch.inf)
            log_probs[:, vocabulary] = some
        self.replace(log_probs)

    @classmethod
    def of_log_probs(cls, log_probs: Tensor) -> Distribution:
        """One that is normalised already, (rows, vocabulary) float32."""
        distribution = cls.__new__(cls)
        distribution.replace(log_probs)
        return distribution

    @property
    def log_probs(self) -> Tensor:
        """log p, (rows, vocabulary), to be read only."""
        if self.shift is not None:
            self.stored.add_(self.shift)
            self.shift, self._largest = None, None
        return self.stored

    def replace(self, log_probs: Tensor) -> None:
        """Let it be another one, (rows, vocabulary)."""
        self.stored, self.shift, self._largest = log_probs, None, None

    def of(self, tokens: Tensor) -> Tensor:
        """log p of some tokens of each row, (rows, n)."""
        found = self.stored.gather(1, tokens)
        return found if self.shift is None else found + self.shift

    def best(self, count: int) -> Best:
        """The most probable tokens of each row, at most as many as there are tokens."""
        vocabulary = self.stored.shape[1]
        count = min(count, vocabulary)
        if vocabulary < 2 * count * CHUNK:
            values, tokens = self.stored.topk(count, dim=1)
        else:
            chunks = self._chunks().topk(count, dim=1, sorted=False).indices
            columns = (chunks.unsqueeze(2) * CHUNK + torch.arange(CHUNK, device=chunks.device)).flatten(1)
            found = self.stored.gather(1, columns.clamp(max=vocabulary - 1))
            if vocabulary % CHUNK:
                found.masked_fill_(columns >= vocabulary, -torch.inf)
            values, places = found.topk(count, dim=1)
            tokens = columns.gather(1, places)
        return Best(values if self.shift is None else values + self.shift, tokens)

    def change(self, changes: StepChanges) -> None:
        """Take what a hook makes of the step."""
        if self.shift is not None:
            changes = changes._replace(shift=changes.shift + self.shift)
        self.shift = changes.shift
        self.stored.scatter_(1, changes.tokens, changes.log_probs - changes.shift)
        if self._largest is not None:
            chunks = changes.tokens // CHUNK
            columns = (chunks.unsqueeze(2) * CHUNK + torch.arange(CHUNK, device=chunks.device)).flatten(1)
            values = self.stored.gather(1, columns.clamp_(max=self.stored.shape[1] - 1))
            self._largest.scatter_(1, chunks, values.view(*chunks.shape, CHUNK).amax(dim=2))

    def write(self, rows: Tensor, tokens: Tensor, log_probs: Tensor | float) -> None:
        """Let some tokens of some rows, (n,) each, have other log-probabilities, (n,)."""
        if self.shift is not None:
            log_probs = log_probs - self.shift[rows, 0]
        self.stored[rows, tokens] = log_probs
        if self._largest is not None:
            chunks = tokens // CHUNK
            columns = chunks.unsqueeze(1) * CHUNK + torch.arange(CHUNK, device=chunks.device)
            values = self.stored[rows.unsqueeze(1), columns.clamp_(max=self.stored.shape[1] - 1)]
            self._largest[rows, chunks] = values.amax(dim=1)

    def ban(self, tokens: Tensor) -> None:
        """Let no row have these tokens, (n,)."""
        self.stored.index_fill_(1, tokens, -torch.inf)
        if self._largest is not None:
            for chunk in torch.unique(tokens // CHUNK).tolist():
                self._largest[:, chunk] = self.stored[:, chunk * CHUNK : (chunk + 1) * CHUNK].amax(dim=1)

    def only(self, row: int, tokens: Tensor) -> None:
        """Let a row have these tokens alone, each with log p of 0."""
        self.stored[row] = -torch.inf
        self.stored[row, tokens] = 0.0 if self.shift is None else -self.shift[row]
        self._largest = None

    def _chunks(self) -> Tensor:
        """The largest of each chunk, (rows, chunks)."""
        if self._largest is None:
            whole = self.stored.shape[1] // CHUNK * CHUNK
            self._largest = self.stored[:, :whole].view(len(self.stored), -1, CHUNK).amax(dim=2)
            if whole < self.stored.shape[1]:
                last = self.stored[:, whole:].amax(dim=1, keepdim=True)
                self._largest = torch.cat([self._largest, last], dim=1)
        return self._largest

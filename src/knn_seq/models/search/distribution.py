from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from knn_seq.models.log_probs import log_softmax
from knn_seq.models.step import LeftOut, StepChanges
from knn_seq.runtime.first_places import first_places

CHUNK = 128  # tokens whose largest log-probability is remembered
FEW = 1 << 16  # log-probabilities: a column for every token costs less than to look for the columns of some

LogitsOf = Callable[[Tensor, Tensor], Tensor]
"""Logits of tokens that cannot come: rows and tokens, (n,) each, to (n,)."""


class Best(NamedTuple):
    """The most probable tokens of each row, best first."""

    log_probs: Tensor  # (rows, n)
    tokens: Tensor  # (rows, n)


class Some(NamedTuple):
    """The tokens that can come, where not all can: a column of each, and columns that rows have for themselves."""

    vocabulary: Tensor  # (n,), ascending
    size: int  # of the complete vocabulary
    more: Tensor | None = None  # (rows, m): the tokens of further columns; where one is there again, or known, −∞

    def places(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The column of each token, and whether it has one."""
        columns = torch.searchsorted(self.vocabulary, tokens.contiguous()).clamp_(max=len(self.vocabulary) - 1)
        return columns, self.vocabulary[columns] == tokens

    def tokens(self, columns: Tensor) -> Tensor:
        """Those of some columns of each row, (rows, n)."""
        known = len(self.vocabulary)
        if self.more is None:
            return self.vocabulary[columns]
        own = self.more.gather(1, (columns - known).clamp_(min=0))
        return torch.where(columns < known, self.vocabulary[columns.clamp(max=known - 1)], own)


class Distribution:
    """log p of every token, of which a few are looked for and a few are changed: no more passes over the vocabulary.

    The largest of each chunk of tokens is found in one pass.  The n best tokens of a row lie in the n chunks with the
    largest, and a token that changes concerns its own chunk.  Where only some tokens can come, only those are held
    until somebody asks for all, unless rows are few.

    Args:
        logits: (rows, vocabulary), written over.
        vocabulary: The only tokens that can come, of which the logits are, ascending; None: all.
        size: Of the complete vocabulary, where only some can come.
        logits_of: Computes those of tokens that cannot come.
    """

    stored: Tensor  # (rows, columns): log p but for the shift of a row; columns are tokens unless only some can come
    shift: Tensor | None  # (rows, 1)
    some: Some | None
    left_out: LeftOut | None  # log p of tokens that cannot come, relative to those that can
    _largest: Tensor | None  # of each chunk of columns, (rows, chunks)
    _best: Best | None  # the most probable token of each row
    _changed: set[int]  # rows for which that does not hold any more

    def __init__(
        self,
        logits: Tensor,
        vocabulary: Tensor | None = None,
        size: int | None = None,
        logits_of: LogitsOf | None = None,
    ) -> None:
        self.left_out = None
        logits = logits.float()
        highest = None if logits_of is None else logits.amax(dim=1)  # before they are written over
        self.replace(log_softmax(logits))
        if vocabulary is None or size is None:
            return
        self.some = Some(vocabulary, size)
        if logits_of is not None and highest is not None:
            self.left_out = _left_out(logits_of, highest - self.stored.amax(dim=1))
        if len(logits) * size <= FEW:
            self._complete()

    @classmethod
    def of_log_probs(cls, log_probs: Tensor, left_out: LeftOut | None = None) -> Distribution:
        """One that is normalised already, (rows, vocabulary) float32."""
        distribution = cls.__new__(cls)
        distribution.left_out = left_out
        distribution.replace(log_probs)
        return distribution

    def rows(self, rows: Tensor) -> Distribution:
        """A copy of some rows, (n,)."""
        left_out = self.left_out
        own = None if left_out is None else lambda places, tokens: left_out(rows[places], tokens)
        return Distribution.of_log_probs(self.log_probs[rows], own)

    @property
    def log_probs(self) -> Tensor:
        """log p, (rows, vocabulary), to be read only."""
        stored = self._complete()
        if self.shift is not None:
            stored.add_(self.shift)
            self.shift, self._largest = None, None
        return stored

    def replace(self, log_probs: Tensor) -> None:
        """Let it be another one, (rows, vocabulary)."""
        self.stored, self.shift, self.some, self._largest, self._best = log_probs, None, None, None, None
        self._changed = set()

    def of(self, tokens: Tensor, first: int = 0) -> Tensor:
        """log p of some tokens of each row from the first on, (rows, n), also of those that cannot come."""
        own = slice(first, first + len(tokens))
        if self.some is None or self.some.more is not None:
            found = self._complete()[own].gather(1, tokens)
        else:
            columns, known = self.some.places(tokens)
            found = self.stored[own].gather(1, columns).masked_fill_(~known, -torch.inf)
        if self.left_out is not None:
            rows, places = (found == -torch.inf).nonzero(as_tuple=True)
            if len(rows):
                found[rows, places] = self.left_out(rows + first, tokens[rows, places])
        return found if self.shift is None else found + self.shift[own]

    def of_row(self, row: int, tokens: Sequence[int]) -> list[float]:
        """log p of some tokens of one row, also of those that cannot come."""
        if self.some is None and self.stored.device.type == "cpu":  # numpy is faster at so few
            own = self.stored.numpy()[row, tokens]
            found: list[float] = (own if self.shift is None else own + self.shift.numpy()[row]).tolist()
            if self.left_out is None or -math.inf not in found:
                return found
        found = self.of(torch.tensor([tokens], device=self.stored.device), row)[0].tolist()
        return found

    def largest(self, count: int) -> Tensor:
        """The largest log p of each row, largest first, (rows, count)."""
        if count == 0:
            return self.stored[:, :0]
        if count > 1:
            return self.best(count).log_probs
        found = (self.stored if self._largest is None else self._largest).amax(dim=1, keepdim=True)
        return found if self.shift is None else found + self.shift

    def best(self, count: int) -> Best:
        """The most probable tokens of each row, at most as many as there are tokens."""
        if count == 1 and self._best is not None:
            if self._changed:
                self._best = self._updated(self._best)
            return self._best
        width = self.stored.shape[1]
        count = min(count, width)
        if count == 1 and self.stored.device.type == "cpu":  # numpy is faster at this than torch is at chunks
            columns = torch.from_numpy(self.stored.numpy().argmax(axis=1)).unsqueeze(1)
            values = self.stored.gather(1, columns)
        elif width < 2 * count * CHUNK:
            values, columns = self.stored.topk(count, dim=1)
        else:
            chunks = self._chunks().topk(count, dim=1, sorted=False).indices
            inside = (chunks.unsqueeze(2) * CHUNK + torch.arange(CHUNK, device=chunks.device)).flatten(1)
            found = self.stored.gather(1, inside.clamp(max=width - 1) if width % CHUNK else inside)
            if width % CHUNK:
                found.masked_fill_(inside >= width, -torch.inf)
            values, places = found.topk(count, dim=1)
            columns = inside.gather(1, places)
        tokens = columns if self.some is None else self.some.tokens(columns)
        best = Best(values if self.shift is None else values + self.shift, tokens)
        if count == 1:
            self._best, self._changed = best, set()
        return best

    def _updated(self, best: Best) -> Best:
        """What was the most probable token of each row, with those of rows that have changed."""
        log_probs, tokens = best.log_probs.clone(), best.tokens.clone()
        for row in self._changed:
            tokens[row] = token = self.best_token(row)
            log_probs[row] = self.of_row(row, [token])[0]
        self._changed = set()
        return Best(log_probs, tokens)

    def best_token(self, row: int) -> int:
        """The most probable token of one row."""
        stored = self.stored[row]
        column = int(stored.numpy().argmax() if stored.device.type == "cpu" else stored.argmax())
        return self._tokens(row, [column])[0]

    def best_tokens(self, row: int, count: int) -> Sequence[int]:
        """The most probable tokens of one row, best first, without those that cannot come."""
        values, columns = self.stored[row].topk(min(count, self.stored.shape[1]))
        return self._tokens(row, columns[values > -torch.inf].tolist())

    def _tokens(self, row: int, columns: Sequence[int]) -> Sequence[int]:
        if self.some is None:
            return columns
        own = torch.tensor([columns], device=self.stored.device)
        more = None if self.some.more is None else self.some.more[row : row + 1]
        found: list[int] = self.some._replace(more=more).tokens(own)[0].tolist()
        return found

    def change(self, changes: StepChanges) -> None:
        """Take what a hook makes of the step."""
        self._best = None
        raised = changes.log_probs if self.shift is None else changes.log_probs - self.shift
        self.shift = changes.shift if self.shift is None else changes.shift + self.shift
        columns = self._columns(changes.tokens)
        self.stored.scatter_(1, columns, raised)
        if self._largest is not None:  # nothing becomes smaller
            self._largest.scatter_reduce_(1, columns // CHUNK, raised, "amax")

    def write(self, rows: Tensor, tokens: Tensor, log_probs: Tensor | float) -> None:
        """Let some tokens of some rows, (n,) each, have other log-probabilities, (n,)."""
        stored, self._best = self._complete(), None
        if self.shift is not None:
            log_probs = log_probs - self.shift[rows, 0]
        stored[rows, tokens] = log_probs
        if self._largest is not None:
            chunks = tokens // CHUNK
            columns = chunks.unsqueeze(1) * CHUNK + torch.arange(CHUNK, device=chunks.device)
            values = stored[rows.unsqueeze(1), columns.clamp_(max=stored.shape[1] - 1)]
            self._largest[rows, chunks] = values.amax(dim=1)

    def write_row(self, row: int, tokens: Sequence[int], log_probs: Sequence[float]) -> None:
        """Let some tokens of one row have other log-probabilities."""
        if self._largest is None and self.stored.device.type == "cpu":
            self._row_changes(row)
            written = np.array(log_probs, dtype=np.float32)
            own = written if self.shift is None else written - self.shift.numpy()[row]
            self._complete().numpy()[row, tokens] = own
            return
        places = torch.tensor(tokens, device=self.stored.device)
        self.write(torch.full_like(places, row), places, torch.tensor(log_probs, device=places.device))

    def shift_row(self, row: int, amount: float) -> None:
        """Add something to log p of all tokens of a row."""
        self._row_changes(row)
        self.stored[row].add_(amount)
        if self._largest is not None:
            self._largest[row].add_(amount)
        if self.left_out is not None:
            self.left_out = _shifted(self.left_out, row, amount)

    def _row_changes(self, row: int) -> None:
        """Another token of a row may be the most probable one now."""
        if self.stored.device.type == "cpu":
            self._changed.add(row)
        else:  # a device would have to be waited for
            self._best = None

    def ban(self, tokens: tuple[int, ...]) -> None:
        """Let no row have these tokens."""
        banned = _on(tokens, self.stored.device)
        if self._best is not None and banned.device.type == "cpu":
            self._changed.update(row for row, (best,) in enumerate(self._best.tokens.tolist()) if best in tokens)
        else:
            self._best = None
        if self.some is not None:
            columns, known = self.some.places(banned)
            if self.some.more is not None:
                own = (self.some.more.unsqueeze(2) == banned).any(dim=2)
                self.stored[:, len(self.some.vocabulary) :].masked_fill_(own, -torch.inf)
            banned, self._largest = columns[known], None
        self.stored.index_fill_(1, banned, -torch.inf)
        if self._largest is not None:
            for chunk in {token // CHUNK for token in tokens}:
                self._largest[:, chunk] = self.stored[:, chunk * CHUNK : (chunk + 1) * CHUNK].amax(dim=1)

    def only(self, row: int, tokens: Tensor) -> None:
        """Let a row have these tokens alone, each with log p of 0."""
        stored, self._best = self._complete(), None
        stored[row] = -torch.inf
        stored[row, tokens] = 0.0 if self.shift is None else -self.shift[row]
        self._largest = None

    def _columns(self, tokens: Tensor) -> Tensor:
        """Where tokens of each row, (rows, n), are stored; those that could not come get a column."""
        if self.some is None or self.some.more is not None:
            self._complete()
            return tokens
        columns, known = self.some.places(tokens)
        if bool(known.all()):
            return columns
        more = torch.full_like(tokens, -torch.inf, dtype=self.stored.dtype)
        first = first_places(tokens)
        columns = torch.where(known, columns, self.stored.shape[1] + first)
        self.stored, self.some, self._largest = (
            torch.cat([self.stored, more], dim=1),
            self.some._replace(more=tokens),
            None,
        )
        return columns

    def _complete(self) -> Tensor:
        """What is stored, with a column for every token."""
        if self.some is not None:
            vocabulary, size, more = self.some
            complete = self.stored.new_full((len(self.stored), size), -torch.inf)
            complete[:, vocabulary] = self.stored[:, : len(vocabulary)]
            if more is not None:
                complete.scatter_reduce_(1, more, self.stored[:, len(vocabulary) :], "amax")
            self.stored, self.some, self._largest = complete, None, None
        return self.stored

    def _chunks(self) -> Tensor:
        """The largest of each chunk, (rows, chunks)."""
        if self._largest is None:
            whole = self.stored.shape[1] // CHUNK * CHUNK
            self._largest = self.stored[:, :whole].view(len(self.stored), -1, CHUNK).amax(dim=2)
            if whole < self.stored.shape[1]:
                last = self.stored[:, whole:].amax(dim=1, keepdim=True)
                self._largest = torch.cat([self._largest, last], dim=1)
        return self._largest


def _left_out(logits_of: LogitsOf, normalizers: Tensor) -> LeftOut:
    """log p of tokens that have no column; of each row what its logits lack to be log p, (rows,)."""
    return lambda rows, tokens: logits_of(rows, tokens).float() - normalizers[rows]


def _shifted(left_out: LeftOut, row: int, amount: float) -> LeftOut:
    """The same with something added in one row."""
    return lambda rows, tokens: left_out(rows, tokens) + amount * (rows == row)


@lru_cache(maxsize=64)
def _on(tokens: tuple[int, ...], device: torch.device) -> Tensor:
    """Tokens as a tensor; making it takes as long as to ban them."""
    return torch.tensor(tokens, device=device)

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor


class TokenScores:
    """log p of the tokens that generate() chooses, from one small table a step: no distribution but the last is kept.

    Which tokens were chosen at a step is seen at the next, where prefixes end with them; those that ended an output are
    not among these, but they are known beforehand.  A table holds log p of all of them after each beam of a sentence.

    Args:
        beams: Rows of a sentence among which tokens are chosen; 1: each row stands alone.
        ends: The tokens that end an output.
        device: Where the search runs.
    """

    def __init__(self, beams: int, ends: Collection[int], device: torch.device) -> None:
        self.beams = beams
        # A row that stands alone has one token at each step, the end or not.
        self._ends = torch.tensor(sorted(ends) if beams > 1 else [], dtype=torch.int64, device=device)
        self._last: Tensor | None = None  # (rows, vocabulary)
        self._tokens: list[Tensor] = []  # (sentences, columns) a step
        self._tables: list[Tensor] = []  # (sentences, beams, columns) a step

    def offer(self, log_probs: Tensor) -> None:
        """What the tokens of a step are chosen from, (rows, vocabulary); nobody may write into it until they are."""
        self._last = log_probs

    def choose(self, tokens: Tensor) -> None:
        """The tokens that the rows continue with, (rows,); to be called before the next step, which needs memory."""
        if self._last is None:
            return
        tokens = tokens.view(-1, self.beams)
        tokens = torch.cat([tokens, self._ends.expand(len(tokens), -1)], dim=1)
        self._tokens.append(tokens)
        table = self._last.gather(1, tokens.repeat_interleave(self.beams, dim=0))
        self._tables.append(table.view(len(tokens), self.beams, -1))
        self._last = None

    def totals(self, outputs: Tensor, lengths: Sequence[int], rows: Tensor) -> list[float]:
        """The sum of log p of each output's tokens.

        Args:
            outputs: Their tokens, (outputs, longest).
            lengths: How many tokens of each output count.
            rows: The row that each token was chosen in, (outputs, longest); anything behind an output's end.
        """
        assert self._last is not None, "generate() made no step"
        seen = len(self._tables)
        rows = rows.clamp(min=0)
        parts = []
        if seen:
            sentences, tokens = rows[:, :seen] // self.beams, outputs[:, :seen]
            steps = torch.arange(tokens.shape[1], device=outputs.device)
            columns = (torch.stack(self._tokens)[steps, sentences] == tokens.unsqueeze(2)).int().argmax(dim=2)
            parts.append(torch.stack(self._tables)[steps, sentences, rows[:, :seen] % self.beams, columns])
        if outputs.shape[1] > seen:
            parts.append(self._last[rows[:, seen], outputs[:, seen]].unsqueeze(1))
        log_probs = torch.cat(parts, dim=1)
        counted = torch.arange(outputs.shape[1]) < torch.tensor(lengths).unsqueeze(1)
        totals: list[float] = torch.where(counted, log_probs.cpu().double(), 0.0).sum(dim=1).tolist()
        return totals

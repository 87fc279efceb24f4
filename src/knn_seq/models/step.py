"""One step of decoding, and those who may change what comes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from knn_seq.models.search.search_step import SearchStep

LeftOut = Callable[[Tensor, Tensor], Tensor]
"""log p_MT of tokens that are not in the shortlist, relative to those that are: rows and tokens, (n,) each, to (n,)."""


@dataclass(frozen=True)
class Step:
    """One step of decoding, a row for each beam of each sentence."""

    queries: Tensor  # (rows, dimension): the hidden states, in the model's dtype
    log_probs: Tensor  # (rows, vocabulary): log p_MT, float32
    prefixes: Tensor  # (rows, t): the tokens generated so far; -1 behind them in rows that have fewer than others
    sentences: Tensor  # (rows,): the number of each row's sentence, on the CPU: no device has to be asked for it
    finished: Tensor | None = None  # (rows,) bool: rows that are complete, whose log_probs nobody reads
    largest: Callable[[int], Tensor] | None = None  # a faster way to `best_log_probs`
    attention: Tensor | None = None  # (rows, source tokens): where the model looks, if it can tell and is asked
    left_out: LeftOut | None = None  # for a model with a shortlist; None: all log_probs are known

    def best_log_probs(self, count: int) -> Tensor:
        """The largest of each row's log_probs, largest first, (rows, count)."""
        if self.largest is not None:
            return self.largest(count)
        return largest_log_probs(self.log_probs, count)

    def log_probs_of(self, tokens: Tensor) -> Tensor:
        """log p_MT of some tokens of each row, (rows, n), also where a shortlist has left them out."""
        found = self.log_probs.gather(1, tokens)
        if self.left_out is not None:
            rows, places = (found == -torch.inf).nonzero(as_tuple=True)
            if len(rows):
                found[rows, places] = self.left_out(rows, tokens[rows, places])
        return found


class StepView(Protocol):
    """What a `StreamHook` is told of a `Step`: it asks for the few tokens that it wants to know of."""

    @property
    def queries(self) -> Tensor:
        """See `Step`."""

    @property
    def prefixes(self) -> Tensor:
        """See `Step`."""

    @property
    def sentences(self) -> Tensor:
        """See `Step`."""

    @property
    def finished(self) -> Tensor | None:
        """See `Step`."""

    def best_log_probs(self, count: int) -> Tensor:
        """See `Step`."""

    def log_probs_of(self, tokens: Tensor) -> Tensor:
        """See `Step`."""


def largest_log_probs(log_probs: Tensor, count: int) -> Tensor:
    """The largest of each row, (rows, vocabulary), largest first, (rows, count)."""
    if count == 1:  # several times faster than to look for more
        return log_probs.amax(dim=1, keepdim=True)
    return log_probs.topk(count, dim=1).values if count else log_probs[:, :0]


class StepChanges(NamedTuple):
    """What becomes of a step's log-probabilities: some tokens are raised, then all of a row shift alike."""

    shift: Tensor  # (rows, 1)
    tokens: Tensor  # (rows, n): may be there twice, with the same log_probs
    log_probs: Tensor  # (rows, n): what these tokens have before the shift, no less than they had

    def apply(self, log_probs: Tensor) -> Tensor:
        """What becomes of log-probabilities, (rows, vocabulary), which are written over."""
        return log_probs.scatter_(1, self.tokens, self.log_probs).add_(self.shift)


StepHook = Callable[[Step], Tensor]
"""Makes of a step the log-probabilities to decode with, (rows, vocabulary); it may write into the step's own.

One that has the attribute `wants_attention`, and it is true, is told where the model looks.
"""


def wants_attention(step_hook: StepHook | None) -> bool:
    """Whether a hook is to be told where the model looks."""
    return bool(getattr(step_hook, "wants_attention", False))


class StreamHook(ABC):
    """A step hook that is told which sentences enter a batch and leave it, and that changes few tokens of a step."""

    @abstractmethod
    def enter(self, sentences: Sequence[int]) -> None:
        """Get ready for the sentences with these numbers, which are in the next step for the first time."""

    @abstractmethod
    def leave(self, sentences: Sequence[int]) -> None:
        """Let go of what is kept for sentences that are done."""

    @abstractmethod
    def edit(self, step: SearchStep) -> None:
        """Change a step's distribution."""

    @abstractmethod
    def __call__(self, step: Step) -> Tensor:
        """The same as a `StepHook`: log-probabilities, (rows, vocabulary)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from knn_seq.models import Step, StepHook, StreamHook
from knn_seq.models.search import SearchStep
from knn_seq.models.step import wants_attention


def chained(*hooks: StepHook | None) -> StepHook | None:
    """Step hooks as one, in their order; None for one that is not there."""
    there = [hook for hook in hooks if hook is not None]
    return StepHooks(*there) if len(there) > 1 else next(iter(there), None)


class StepHooks(StreamHook):
    """Several step hooks as one: each sees what those before it made of a step.

    Args:
        hooks: In their order.
    """

    def __init__(self, *hooks: StepHook) -> None:
        self.hooks = hooks
        self.wants_attention = any(map(wants_attention, self.hooks))
        self._streams = [hook for hook in hooks if isinstance(hook, StreamHook)]

    def enter(self, sentences: Sequence[int]) -> None:
        """See `StreamHook`."""
        for hook in self._streams:
            hook.enter(sentences)

    def leave(self, sentences: Sequence[int]) -> None:
        """See `StreamHook`."""
        for hook in self._streams:
            hook.leave(sentences)

    def edit(self, step: SearchStep) -> None:
        """See `StreamHook`."""
        for hook in self.hooks:
            step.apply(hook)

    def __call__(self, step: Step) -> Tensor:
        """The last one's log-probabilities, (rows, vocabulary)."""
        for hook in self.hooks:
            step = replace(step, log_probs=hook(step), largest=None)
        return step.log_probs

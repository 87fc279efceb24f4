from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from knn_seq.models import Step, StepHook
from knn_seq.models.base import wants_attention


class StepHooks:
    """Several step hooks as one: each sees what those before it made of a step.

    Args:
        hooks: In their order; None for one that is not there.
    """

    def __init__(self, *hooks: StepHook | None) -> None:
        self.hooks = [hook for hook in hooks if hook is not None]
        self.wants_attention = any(map(wants_attention, self.hooks))

    def __call__(self, step: Step) -> Tensor:
        """The last one's log-probabilities, (rows, vocabulary)."""
        for hook in self.hooks:
            step = replace(step, log_probs=hook(step), largest=None)
        return step.log_probs

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from knn_seq.models.base import Hypothesis, StepHook
from knn_seq.models.search.distribution import Distribution
from knn_seq.models.search.plan import SearchPlan

Unruled = Mapping[tuple[int, int], float]
"""log p of a row's token, as it was decoded from, where a rule has changed it."""


@dataclass(frozen=True, eq=False)
class Request:
    """A sentence that is to be translated."""

    ticket: int  # its name
    source: Sequence[int]  # what the encoder reads, or the prompt
    forced: Sequence[int]  # the tokens before the first step, which rules look at: prefix or prompt
    plan: SearchPlan
    hook: StepHook | None
    number: int  # the sentence's number for the hook

    @property
    def tokens(self) -> int:
        """Those of the source, and of all beams if an output becomes as long as its source, or as it may."""
        return len(self.source) + self.plan.rows * min(len(self.source), self.plan.max_new_tokens)


class Sentence(ABC):
    """A sentence under way, with as many open prefixes as it has rows.

    Args:
        request: What is wanted.
    """

    def __init__(self, request: Request) -> None:
        self.request, self.plan = request, request.plan
        rows = request.plan.rows
        self.prefixes: list[list[int]] = [[] for _ in range(rows)]  # the tokens generated so far
        self.parents = list(range(rows))  # the row that each row continued in the last step
        self.length = 0  # steps made
        self.done = False

    @property
    def finished_rows(self) -> Sequence[bool] | None:
        """Which rows are complete though they are still there, if any is."""
        return None

    @abstractmethod
    def outputs(self) -> list[Hypothesis]:
        """What was found, best first, once it is done."""


class Chooser(ABC):
    """A kind of search: chooses how the sentences of a batch continue."""

    @abstractmethod
    def sentence(self, request: Request) -> Sentence:
        """The state of a sentence that enters."""

    @abstractmethod
    def choose(self, distribution: Distribution, sentences: Sequence[Sentence], unruled: Unruled) -> None:
        """One step: every sentence gets its next tokens."""

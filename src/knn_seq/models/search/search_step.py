from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from knn_seq.models.search.distribution import Distribution
from knn_seq.models.search.sentence import Sentence
from knn_seq.models.step import Step, StepHook, StreamHook


class SearchStep:
    """A step as a `StreamHook` sees it: nothing is made that it does not ask for.

    Args:
        queries: See `Step`.
        sentences: Those of the step.
        numbers: The number of each row's sentence; the same list in every step with the same rows.
        distribution: What a hook may look at and change.
        attention: See `Step`.
    """

    def __init__(
        self,
        queries: Tensor,
        sentences: Sequence[Sentence],
        numbers: Sequence[int],
        distribution: Distribution,
        attention: Tensor | None,
    ) -> None:
        self.queries, self._sentences, self.numbers = queries, sentences, numbers
        self.distribution, self.attention = distribution, attention

    @cached_property
    def sentences(self) -> Tensor:
        """See `Step`."""
        return torch.tensor(self.numbers)

    @cached_property
    def prefixes(self) -> Tensor:
        """See `Step`."""
        return _prefixes(self._sentences, self.queries.device)

    @cached_property
    def finished(self) -> Tensor | None:
        """See `Step`."""
        return _finished(self._sentences, self.queries.device)

    @property
    def log_probs(self) -> Tensor:
        """See `Step`; made when it is asked for."""
        return self.distribution.log_probs

    def prefix(self, row: int) -> list[int]:
        """The tokens of one row so far."""
        sentence, place = divmod(row, len(self._sentences[0].prefixes))
        return self._sentences[sentence].prefixes[place]

    def best_log_probs(self, count: int) -> Tensor:
        """See `Step`."""
        return self.distribution.largest(count)

    def log_probs_of(self, tokens: Tensor) -> Tensor:
        """See `Step`."""
        return self.distribution.of(tokens)

    def apply(self, hook: StepHook) -> None:
        """Let a hook change the distribution."""
        if isinstance(hook, StreamHook):
            hook.edit(self)
            return
        held = self.distribution
        step = Step(
            self.queries,
            held.log_probs,
            self.prefixes,
            self.sentences,
            self.finished,
            held.largest,
            self.attention,
            held.left_out,
        )
        held.replace(hook(step))


def _prefixes(sentences: Sequence[Sentence], device: torch.device) -> Tensor:
    longest = max(sentence.length for sentence in sentences)
    rows = [
        prefix if len(prefix) == longest else prefix + [-1] * (longest - len(prefix))
        for sentence in sentences
        for prefix in sentence.prefixes
    ]
    return torch.tensor(rows, dtype=torch.int64, device=device).view(len(rows), longest)


def _finished(sentences: Sequence[Sentence], device: torch.device) -> Tensor | None:
    finished = [sentence.finished_rows for sentence in sentences]
    if not any(finished):
        return None
    rows = [
        row
        for sentence, own in zip(sentences, finished, strict=True)
        for row in own or [False] * len(sentence.prefixes)
    ]
    return torch.tensor(rows, device=device)

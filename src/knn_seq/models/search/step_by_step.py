"""One token after the other, and no way back: greedy search and sampling."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import cast

import torch
from torch import Tensor

from knn_seq.models.base import Hypothesis
from knn_seq.models.search.distribution import Distribution
from knn_seq.models.search.plan import SearchPlan
from knn_seq.models.search.sentence import Chooser, Request, Sentence, Unruled


class Line(Sentence):
    """A sentence each of whose rows goes its own way."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.totals = [0.0] * self.plan.rows
        self.open = [True] * self.plan.rows
        self.generator: torch.Generator | None = None

    @property
    def finished_rows(self) -> Sequence[bool] | None:
        """Those that have ended before another of the sentence."""
        return None if all(self.open) else [not each for each in self.open]

    def take(self, tokens: Sequence[int], log_probs: Sequence[float]) -> None:
        """Let each open row continue with its token."""
        self.length += 1
        end = next(iter(self.plan.ends), 0)
        for row, (token, log_prob) in enumerate(zip(tokens, log_probs, strict=True)):
            if self.open[row]:
                self.totals[row] += log_prob
                self.open[row] = token not in self.plan.ends
                self.prefixes[row].append(token)
            else:
                self.prefixes[row].append(end)  # nobody reads it
        self.done = self.length == self.plan.max_new_tokens or not any(self.open)

    def outputs(self) -> list[Hypothesis]:
        """The tokens of each row up to its end."""
        return [
            Hypothesis(until_end(tokens, self.plan.ends), total)
            for tokens, total in zip(self.prefixes, self.totals, strict=True)
        ]


class Greedy(Chooser):
    """The best token of each row."""

    def sentence(self, request: Request) -> Sentence:
        """See `Chooser`."""
        return Line(request)

    def choose(self, distribution: Distribution, sentences: Sequence[Sentence], unruled: Unruled) -> None:
        """See `Chooser`."""
        best = distribution.best(1)
        _take(sentences, best.tokens[:, 0].tolist(), best.log_probs[:, 0].tolist(), unruled)


class Sampling(Chooser):
    """A token of each row, drawn.  A sentence with a seed has random numbers of its own, whoever is beside it."""

    def sentence(self, request: Request) -> Sentence:
        """See `Chooser`."""
        return Line(request)

    def choose(self, distribution: Distribution, sentences: Sequence[Sentence], unruled: Unruled) -> None:
        """See `Chooser`."""
        log_probs, first, drawn = distribution.log_probs, 0, []
        for plan, group in groupby(cast("Sequence[Line]", sentences), lambda sentence: sentence.plan):
            members = list(group)
            seeded = plan.seed is not None
            for some in [[each] for each in members] if seeded else [members]:
                rows = len(some) * plan.rows
                generator = _generator(some[0], log_probs.device) if seeded else None
                drawn.append(draw(log_probs[first : first + rows], plan, generator))
                first += rows
        tokens = torch.cat(drawn)
        _take(sentences, tokens.tolist(), log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1).tolist(), unruled)


def draw(log_probs: Tensor, plan: SearchPlan, generator: torch.Generator | None = None) -> Tensor:
    """A token of each row, (rows,), from its log-probabilities, (rows, vocabulary)."""
    logits = log_probs / plan.temperature
    if plan.top_k:
        least = logits.topk(min(plan.top_k, logits.shape[1])).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if plan.top_p < 1:
        ascending, order = logits.sort(dim=1)
        rare = ascending.softmax(dim=1).cumsum(dim=1) <= 1 - plan.top_p
        rare[:, -1] = False  # the best one stays in any case
        logits = logits.masked_fill(torch.empty_like(rare).scatter_(1, order, rare), -torch.inf)
    return torch.multinomial(logits.softmax(dim=1), num_samples=1, generator=generator).squeeze(1)


def _generator(sentence: Line, device: torch.device) -> torch.Generator:
    """That of a sentence: the first of a call draws what it would draw alone, others something else."""
    if sentence.generator is None:
        seed = (sentence.plan.seed or 0) + sentence.request.number
        sentence.generator = torch.Generator(device).manual_seed(seed)
    return sentence.generator


def _take(sentences: Sequence[Sentence], tokens: list[int], log_probs: list[float], unruled: Unruled) -> None:
    if unruled:
        log_probs = [unruled.get(place, log_probs[place[0]]) for place in enumerate(tokens)]
    first = 0
    for sentence in cast("Sequence[Line]", sentences):
        rows = slice(first, first + sentence.plan.rows)
        sentence.take(tokens[rows], log_probs[rows])
        first = rows.stop


def until_end(tokens: list[int], ends: Collection[int]) -> list[int]:
    """The tokens to the first that ends an output, or all of them."""
    for place, token in enumerate(tokens):
        if token in ends:
            return tokens[: place + 1]
    return tokens

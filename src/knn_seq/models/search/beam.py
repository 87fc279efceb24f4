"""Beam search, as Transformers defines it: the same candidates, the same order, the same end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch

from knn_seq.models.base import Hypothesis
from knn_seq.models.search.distribution import Distribution
from knn_seq.models.search.sentence import Chooser, Request, Sentence, Unruled

NEVER = -1.0e9  # the score of a beam that does not count


class Candidate(NamedTuple):
    """A way to continue a sentence."""

    score: float  # the sum of log p, as rules have changed it
    row: int  # of the sentence, that it continues
    token: int
    log_prob: float  # of the token, as it was decoded from


class Output(NamedTuple):
    """An output of a sentence that is complete."""

    score: float  # with the length penalty
    tokens: list[int]
    total: float  # the sum of log p


class Beam(Sentence):
    """A sentence with its open prefixes, best first, and its best outputs by log p / length ** length_penalty."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        # All beams are the same at first: one of them counts.
        self.scores = [0.0, *[NEVER] * (self.plan.beams - 1)]
        self.totals = [0.0] * self.plan.beams
        self.complete: list[Output] = []

    def take(self, candidates: Sequence[Candidate]) -> None:
        """Choose among candidates, best first."""
        self.length += 1
        plan, last = self.plan, self.length == self.plan.max_new_tokens
        going_on: list[Candidate] = []
        for rank, each in enumerate(candidates):
            if not last and each.token not in plan.ends:
                going_on.append(each)
            elif rank < plan.beams and each.score > -np.inf:
                # Only a candidate that is no worse than an open beam counts as an output.
                tokens = [*self.prefixes[each.row], each.token]
                score = self._penalised(each.score, self.length)
                self.complete.append(Output(score, tokens, self.totals[each.row] + each.log_prob))
        self.complete.sort(key=lambda output: -output.score)  # stable: who came first stays first
        del self.complete[plan.beams :]
        if last or not going_on:
            self.done = True
            return
        self._continue(going_on[: plan.beams])
        self.done = len(self.complete) == plan.beams and (plan.early_stopping is True or not self._hopeful())

    def outputs(self) -> list[Hypothesis]:
        """The best of them."""
        found = [Hypothesis(output.tokens, output.total) for output in self.complete[: self.plan.nbest]]
        return found or [Hypothesis([], -np.inf)]

    def _continue(self, chosen: list[Candidate]) -> None:
        # Where rules leave too few, one of them is there again, and never chosen.
        spare = chosen[0]._replace(score=-np.inf)
        chosen = chosen + [spare] * (self.plan.beams - len(chosen))
        self.parents = [each.row for each in chosen]
        self.prefixes = [[*self.prefixes[each.row], each.token] for each in chosen]
        self.totals = [self.totals[each.row] + each.log_prob for each in chosen]
        self.scores = [each.score for each in chosen]

    def _hopeful(self) -> bool:
        """Whether the best open prefix, taken as it is, is better than the worst of the outputs."""
        longest = self.plan.early_stopping == "never" and self.plan.length_penalty > 0
        possible = self._penalised(self.scores[0], self.plan.max_new_tokens if longest else self.length)
        return possible > self.complete[-1].score

    def _penalised(self, score: float, length: int) -> float:
        return float(np.float32(score) / np.float32(length**self.plan.length_penalty))


class BeamSearch(Chooser):
    """The best prefixes of each sentence are kept open."""

    def sentence(self, request: Request) -> Sentence:
        """See `Chooser`."""
        return Beam(request)

    def choose(self, distribution: Distribution, sentences: Sequence[Sentence], unruled: Unruled) -> None:
        """See `Chooser`."""
        beams = cast("Sequence[Beam]", sentences)
        width = beams[0].plan.beams
        # So many that, should all ends be among the best, enough others can be continued.
        wanted = max(max(2, 1 + len(sentence.plan.ends)) for sentence in beams) * width
        best = distribution.best(wanted)
        each = best.tokens.shape[1]  # candidates of a row
        scores = torch.tensor([sentence.scores for sentence in beams], device=best.log_probs.device)
        sums = (best.log_probs.view(len(beams), width, each) + scores.unsqueeze(2)).flatten(1)
        top = sums.topk(min(wanted, sums.shape[1]), dim=1)
        places = top.indices + each * width * torch.arange(len(beams), device=sums.device).unsqueeze(1)
        columns = (
            top.values.tolist(),
            (top.indices // each).tolist(),
            best.tokens.flatten()[places].tolist(),
            best.log_probs.flatten()[places].tolist(),
        )
        for number, (sentence, *rows) in enumerate(zip(beams, *columns, strict=True)):
            own = max(2, 1 + len(sentence.plan.ends)) * width
            candidates = [Candidate(*candidate) for candidate in zip(*rows, strict=True)][:own]
            if unruled:
                first = number * width
                candidates = [
                    each._replace(log_prob=unruled.get((first + each.row, each.token), each.log_prob))
                    for each in candidates
                ]
            sentence.take(candidates)

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from knn_seq.models.base import Hypothesis
from knn_seq.models.search.beam import BeamSearch
from knn_seq.models.search.decoder import RowDecoder
from knn_seq.models.search.distribution import Distribution
from knn_seq.models.search.plan import SearchPlan
from knn_seq.models.search.rules import apply_rules
from knn_seq.models.search.search_step import SearchStep
from knn_seq.models.search.sentence import Chooser, Request, Sentence
from knn_seq.models.search.step_by_step import Greedy, Sampling
from knn_seq.models.step import StepHook, StreamHook
from knn_seq.runtime.threads import one_thread

# The part of all rows that must be free before sentences enter: an encoder that reads several at once wastes less.
FREE_TO_JOIN = 1 / 4
FREE_TO_OPEN = 1 / 2  # where those that enter make a batch of their own
# Rows times bytes of weights: up to here, to wake a second thread takes more time than it saves.
SMALL_SOURCES, SMALL_STEP = 1 << 30, 1 << 24

OpenDecoder = Callable[[int], RowDecoder]
"""A decoder without sentences, for so many rows of each."""


class Found(NamedTuple):
    """A sentence that is done."""

    ticket: int
    hypotheses: list[Hypothesis]  # best first


class SearchLoop:
    """Searches for the translations of sentences that come and go, each with settings of its own.

    Sentences wait until there is place; all that are under way make a step together; who is done makes place.

    Args:
        open_decoder: The model.
        rows: Prefixes that are open at a time, those of all sentences together.
        tokens: The budget of those that are under way, as `Request.tokens` counts them; a sentence that has more is
            translated alone.
    """

    def __init__(self, open_decoder: OpenDecoder, rows: int, tokens: float = math.inf) -> None:
        self.open_decoder, self.rows, self.tokens = open_decoder, rows, tokens
        self._waiting: deque[Request] = deque()
        self._batches: list[Batch] = []
        self._tickets = count()

    def add(
        self,
        source: Sequence[int],
        forced: Sequence[int],
        plan: SearchPlan,
        hook: StepHook | None = None,
        number: int = 0,
    ) -> int:
        """Let a sentence wait for its turn.

        Args:
            source: What the encoder reads, or the prompt.
            forced: The tokens that are there before the first step.
            plan: How is searched.
            hook: Called at every step, with those sentences of a batch that have the same one.
            number: The sentence's number for the hook.

        Returns:
            Its ticket.
        """
        request = Request(next(self._tickets), source, forced, plan, hook, number)
        self._waiting.append(request)
        return request.ticket

    def cancel(self, ticket: int) -> None:
        """Drop a sentence, wherever it is; of one that is done there is nothing to drop."""
        self._waiting = deque(request for request in self._waiting if request.ticket != ticket)
        for batch in self._batches:
            batch.drop(lambda sentence: sentence.request.ticket == ticket)
        self._batches = [batch for batch in self._batches if batch.sentences]

    @property
    def busy(self) -> bool:
        """Whether any sentence waits or is under way."""
        return bool(self._waiting or self._batches)

    def run(self) -> Iterator[Found]:
        """Steps until all are done."""
        while self.busy:
            yield from self.step()

    @torch.no_grad()
    def step(self) -> list[Found]:
        """One step of all sentences; those that are done with it."""
        self._admit()
        found = []
        for batch in self._batches:
            batch.step()
            done = batch.drop(lambda sentence: sentence.done)
            found += [Found(sentence.request.ticket, sentence.outputs()) for sentence in done]
        self._batches = [batch for batch in self._batches if batch.sentences]
        return found

    def _admit(self) -> None:
        rows = self.rows - sum(batch.rows for batch in self._batches)
        tokens = self.tokens - sum(batch.tokens for batch in self._batches)
        joins = all(batch.decoder.joins for batch in self._batches)
        share = FREE_TO_JOIN if joins else FREE_TO_OPEN
        enough = rows >= share * self.rows and tokens >= share * self.tokens
        if self._batches and not enough and not self._all_fit(rows, tokens):
            return
        entering: dict[tuple[type[Chooser], int], list[Request]] = {}
        while self._waiting and (_fits(self._waiting[0], rows, tokens) or not (self._batches or entering)):
            request = self._waiting.popleft()
            rows, tokens = rows - request.plan.rows, tokens - request.tokens
            entering.setdefault(_kind(request.plan), []).append(request)
        for (chooser, rows_each), requests in entering.items():
            fitting = (each for each in self._batches if each.decoder.joins and each.kind == (chooser, rows_each))
            batch = next(fitting, None)
            if batch is None:
                batch = Batch(self.open_decoder(rows_each), chooser())
                self._batches.append(batch)
            batch.enter(requests)

    def _all_fit(self, rows: int, tokens: float) -> bool:
        """Whether so many free rows and tokens are enough for everyone who waits."""
        if len(self._waiting) > rows:
            return False  # found without looking at all of them
        waiting = self._waiting
        return sum(each.plan.rows for each in waiting) <= rows and sum(each.tokens for each in waiting) <= tokens


def _fits(request: Request, rows: int, tokens: float) -> bool:
    return request.plan.rows <= rows and request.tokens <= tokens


def _kind(plan: SearchPlan) -> tuple[type[Chooser], int]:
    """What must be the same for the sentences of a batch: the search and the number of rows."""
    if plan.sample:
        return Sampling, plan.rows
    return (Greedy if plan.beams == 1 else BeamSearch), plan.rows


class HookGroup(NamedTuple):
    """The sentences of a batch that have the same hook."""

    hook: StepHook
    places: list[int]  # of the sentences
    numbers: list[int]  # of the sentence of each row


class Batch:
    """Sentences that make their steps together.

    Args:
        decoder: Computes the steps.
        chooser: How is searched.
    """

    def __init__(self, decoder: RowDecoder, chooser: Chooser) -> None:
        self.decoder, self.chooser = decoder, chooser
        self.sentences: list[Sentence] = []
        self._hooked: list[HookGroup] | None = None  # None: sentences have come or gone since it was known

    @property
    def kind(self) -> tuple[type[Chooser], int]:
        """See `_kind`."""
        return type(self.chooser), self.decoder.rows_each

    @property
    def rows(self) -> int:
        """Of all sentences."""
        return len(self.sentences) * self.decoder.rows_each

    @property
    def tokens(self) -> int:
        """Of all sentences, as `Request.tokens` counts them."""
        return sum(sentence.request.tokens for sentence in self.sentences)

    def enter(self, requests: Sequence[Request]) -> None:
        """Add sentences behind all others."""
        for hook, its in _by_hook(requests):
            if isinstance(hook, StreamHook):
                hook.enter([requests[place].number for place in its])
        sources = [request.source for request in requests]
        with one_thread(sum(map(len, sources)) * self.decoder.source_bytes <= SMALL_SOURCES):
            self.decoder.enter(sources)
        self.sentences += [self.chooser.sentence(request) for request in requests]
        self._hooked = None

    def drop(self, which: Callable[[Sentence], bool]) -> list[Sentence]:
        """Take sentences out; returns them."""
        dropped = [sentence for sentence in self.sentences if which(sentence)]
        if not dropped:
            return []
        kept = [place for place, sentence in enumerate(self.sentences) if not which(sentence)]
        # The last ones fill the places that have become free, so that few have to move.
        staying = {place for place in kept if place < len(kept)}
        moving = [place for place in kept if place >= len(kept)]
        places = [place if place in staying else moving.pop() for place in range(len(kept))]
        self.sentences, self._hooked = [self.sentences[place] for place in places], None
        if places:
            self.decoder.keep(places)
        requests = [sentence.request for sentence in dropped]
        for hook, its in _by_hook(requests):
            if isinstance(hook, StreamHook):
                hook.leave([requests[place].number for place in its])
        return dropped

    def step(self) -> None:
        """One step of all sentences."""
        tokens = [
            prefix[-1] if prefix else sentence.request.forced[-1]
            for sentence in self.sentences
            for prefix in sentence.prefixes
        ]
        with one_thread(len(tokens) * self.decoder.step_bytes <= SMALL_STEP):
            logits, queries, vocabulary, attention = self.decoder.step(torch.tensor(tokens))
        logits_of = None if vocabulary is None else self.decoder.logits_of
        distribution = Distribution(logits, vocabulary, self.decoder.vocabulary_size, logits_of)
        self._call_hooks(distribution, queries, attention)
        del logits  # so that the next step computes in the same memory, which the CPU has at hand
        self.chooser.choose(distribution, self.sentences, apply_rules(distribution, self.sentences))
        self._follow()

    def _follow(self) -> None:
        rows, moved, first = self.decoder.rows_each, False, 0
        parents: list[int] = []
        if rows == 1:
            return
        same = list(range(rows))
        for sentence in self.sentences:
            moved = moved or sentence.parents != same
            parents += [first + parent for parent in sentence.parents]
            first += rows
        if moved:
            self.decoder.follow(torch.tensor(parents))

    def _call_hooks(self, distribution: Distribution, queries: Tensor, attention: Tensor | None) -> None:
        each = self.decoder.rows_each
        if self._hooked is None:
            self._hooked = self._hook_groups()
        for hook, places, numbers in self._hooked:
            if len(places) == len(self.sentences):
                SearchStep(queries, self.sentences, numbers, distribution, attention).apply(hook)
                continue
            rows = (each * torch.tensor(places).unsqueeze(1) + torch.arange(each)).flatten().to(queries.device)
            part = distribution.rows(rows)
            looks = None if attention is None else attention[rows]
            SearchStep(queries[rows], [self.sentences[place] for place in places], numbers, part, looks).apply(hook)
            distribution.log_probs[rows] = part.log_probs

    def _hook_groups(self) -> list[HookGroup]:
        requests, each = [sentence.request for sentence in self.sentences], range(self.decoder.rows_each)
        return [
            HookGroup(hook, places, [requests[place].number for place in places for _ in each])
            for hook, places in _by_hook(requests)
            if hook is not None
        ]


def _by_hook(requests: Sequence[Request]) -> list[tuple[StepHook | None, list[int]]]:
    """The places of requests that have the same hook."""
    groups: dict[int, tuple[StepHook | None, list[int]]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(id(request.hook), (request.hook, []))[1].append(place)
    return list(groups.values())

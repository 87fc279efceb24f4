"""One step of decoding with neighbours: query, retrieve, combine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from knn_seq.combine import Combiner, CombinerInputs, mix_retrieved
from knn_seq.decoding.outage import Outage
from knn_seq.decoding.pointers import Pointers
from knn_seq.decoding.searches import Searches
from knn_seq.decoding.skip import Skipping
from knn_seq.index import Neighbours
from knn_seq.models import Source, Step, StepChanges, StepView, StreamHook
from knn_seq.models.prefixes import PrefixRows, last_tokens
from knn_seq.models.search import SearchStep
from knn_seq.models.step import largest_log_probs
from knn_seq.retrieve import Retriever
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.settings import SearchSettings


class Prepared(NamedTuple):
    """What a retriever has prepared for sentences that entered together."""

    answer: tuple[Any] | None  # in a tuple, for it may be None; None: the index did not answer
    places: dict[int, int]  # of a sentence's number, among those that it was prepared with


class KnnBatch(StreamHook):
    """Adds neighbours to the steps of sentences that enter and leave.

    Args:
        retriever: Finds neighbours; None: its index does not answer.
        combiner: Weighs them.
        settings: How many neighbours, and in how many sentences they are looked for.
        sources: The sentences by their numbers; with `at_once` a sentence's number is its place.
        stopwatch: Told what searching and combining take.
        outage: What is known of the index from earlier batches.
        skipping: Says which rows need no search; None: all are searched.
        at_once: All sentences are there from the first step on; else each gets ready when it enters.
        reopen: Gives the retriever, should its index answer later.
        pointers: Give neighbours without a search where they can; None: all are searched.
        searches: Told how many rows wanted neighbours, and how many were searched.
    """

    def __init__(
        self,
        retriever: Retriever | None,
        combiner: Combiner,
        settings: SearchSettings,
        sources: Sequence[Source] | Mapping[int, Source],
        stopwatch: Stopwatch | None = None,
        outage: Outage | None = None,
        skipping: Skipping | None = None,
        at_once: bool = True,
        reopen: Callable[[], Retriever] | None = None,
        pointers: Pointers | None = None,
        searches: Searches | None = None,
    ) -> None:
        self.retriever, self.combiner, self.settings, self.sources = retriever, combiner, settings, sources
        self.stopwatch, self.outage, self.skipping = stopwatch or Stopwatch(), outage or Outage(), skipping
        self.reopen, self.pointers, self.searches = reopen, pointers, searches or Searches()
        self._prepared: dict[int, Prepared] = {}  # of a sentence's number
        self._prefixes = PrefixRows()
        self._may_repeat = False
        if at_once:
            self.enter(range(len(sources)))

    def enter(self, sentences: Sequence[int]) -> None:
        """Prepare the search of sentences that are new."""
        new = [number for number in sentences if number not in self._prepared]
        if not new:
            return
        with self.stopwatch.timing("search"):
            if self.retriever is None and self.reopen is not None:
                self.retriever = self.outage.ask(self.reopen, self.settings)
            answer = self.outage.ask(lambda: self._prepare(new), self.settings)
        prepared = Prepared(answer, {number: place for place, number in enumerate(new)})
        self._prepared |= dict.fromkeys(new, prepared)
        self._may_repeat = not self._on_accelerator  # until all prefixes differ: those they grow into do too

    def _prepare(self, numbers: Sequence[int]) -> tuple[Any] | None:
        if self.retriever is None:
            return None
        return (self.retriever.prepare([self.sources[number] for number in numbers], self.settings),)

    @property
    def _on_accelerator(self) -> bool:
        return self.retriever is not None and self.retriever.on_accelerator

    def leave(self, sentences: Sequence[int]) -> None:
        """Let go of what was prepared; what sentences have in common stays until the last of them."""
        for number in sentences:
            self._prepared.pop(number, None)

    def edit(self, step: SearchStep) -> None:
        """Make the mixture of a step's distribution."""
        step.distribution.change(self.changes(step))

    def changes(self, step: StepView) -> StepChanges:
        """The mixture, as what it changes."""
        with self.stopwatch.timing("search"):
            finished = None if self._on_accelerator else step.finished
            rows = None if finished is None else ~finished
            self.searches.wanted += len(step.queries) if rows is None else int(rows.sum())
            needed = self._needed(step)
            if needed is not None:
                rows = needed.to(step.queries.device) if rows is None else rows & needed.to(rows.device)
            neighbours = self.neighbours(step.queries, step.sentences, rows, step.prefixes)
            if self.skipping is not None and needed is not None:
                self.skipping.found(needed, neighbours)
        with self.stopwatch.timing("combination"):
            of_values, best = step.log_probs_of(neighbours.values), step.best_log_probs(self.combiner.best_log_probs)
            if best.shape[1] == 1:  # a value that a shortlist has left out may be likelier than all that it has
                best = torch.maximum(best, of_values.amax(dim=1, keepdim=True))
            inputs = CombinerInputs(step.queries, neighbours, of_values, best)
            combination = self.combiner.combine(inputs, self.settings)
            return mix_retrieved(inputs.value_log_probs, neighbours, combination)

    def __call__(self, step: Step) -> Tensor:
        """The mixture's log-probabilities, (rows, vocabulary)."""
        return self.changes(step).apply(step.log_probs)

    def _needed(self, step: StepView) -> Tensor | None:
        """The rows that are worth a search, (rows,) bool, on the CPU; None: all."""
        if self.skipping is None:
            return None
        parents = self._prefixes.parents(step.sentences, step.prefixes)
        return self.skipping.needed(
            parents, last_tokens(step.prefixes), step.best_log_probs(1)[:, 0], step.log_probs_of
        )

    def neighbours(
        self, queries: Tensor, sentences: Tensor, rows: Tensor | None = None, prefixes: Tensor | None = None
    ) -> Neighbours:
        """The neighbours of each row; there are none while the index does not answer.

        Args:
            queries: (rows, dimension)
            sentences: The number of each row's sentence, (rows,), on the CPU.
            rows: Those that are searched, (rows,) bool; None: all.
            prefixes: The tokens before each row, (rows, t): equal ones have equal queries, which are searched once.
        """
        if self.pointers is None or prefixes is None:
            return self._searched(queries, sentences, rows, prefixes)
        followed = self.pointers.follow(queries, sentences, prefixes)
        left = ~followed.rows if rows is None else rows & ~followed.rows
        found = self._searched(queries, sentences, left, prefixes).replaced(followed.rows, followed.neighbours)
        self.pointers.remember(sentences, prefixes, found, followed)
        return found

    def _searched(self, queries: Tensor, sentences: Tensor, rows: Tensor | None, prefixes: Tensor | None) -> Neighbours:
        nothing = Neighbours.none(len(queries), self.settings.k, queries.device)
        self.searches.made += len(queries) if rows is None else int(rows.sum())
        if rows is not None and not rows.any():
            return nothing
        if rows is None:
            found = self.outage.ask(lambda: self._search(queries, sentences, prefixes), self.settings)
            return found or nothing
        some = (queries[rows], sentences[rows.cpu()], None if prefixes is None else prefixes[rows], False)
        found = self.outage.ask(lambda: self._search(*some), self.settings)
        return found.scatter(rows) if found else nothing

    def _search(self, queries: Tensor, sentences: Tensor, prefixes: Tensor | None, all_rows: bool = True) -> Neighbours:
        of_row = None
        if prefixes is not None and self._may_repeat:
            first, of_row = distinct_prefixes(sentences, prefixes)
            if len(first) < len(queries):
                queries, sentences = queries[first], sentences[first]
            else:
                of_row, self._may_repeat = None, not all_rows
        found = self._retrieve(queries, sentences)
        return found if of_row is None else found.rows(torch.tensor(of_row, device=queries.device))

    def _retrieve(self, queries: Tensor, sentences: Tensor) -> Neighbours:
        """Each row's neighbours, of one retrieval for all sentences that were prepared alike."""
        numbers = sentences.tolist()
        rows_of: dict[int, list[int]] = {}
        prepared_of: dict[int, Prepared] = {}
        for row, number in enumerate(numbers):
            prepared = self._prepared[number]
            # Where nothing was prepared all sentences are alike.
            kind = 0 if prepared.answer == (None,) else id(prepared)
            rows_of.setdefault(kind, []).append(row)
            prepared_of[kind] = prepared
        parts = []
        for kind, rows in rows_of.items():
            answer, places = prepared_of[kind]
            asked = queries if len(rows) == len(queries) else queries[rows]
            if answer is None or self.retriever is None:
                parts.append(Neighbours.none(len(rows), self.settings.k, queries.device))
                continue
            of_rows = torch.tensor([0 if kind == 0 else places[numbers[row]] for row in rows])
            parts.append(self.retriever.retrieve(asked, of_rows, self.settings, answer[0]))
            self.outage.over(self.settings)
        if len(parts) == 1:
            return parts[0]
        order = torch.tensor([row for rows in rows_of.values() for row in rows]).argsort()
        return Neighbours.join(parts).rows(order.to(queries.device))


def combiner_inputs(best: int, queries: Tensor, neighbours: Neighbours, log_probs: Tensor) -> CombinerInputs:
    """What a combiner may look at.

    Args:
        best: How many of the largest log-probabilities.
        queries: (rows, dimension)
        neighbours: Those of each row.
        log_probs: log p_MT of the vocabulary, (rows, vocabulary).
    """
    return CombinerInputs(
        queries, neighbours, log_probs.gather(1, neighbours.values), largest_log_probs(log_probs, best)
    )


def distinct_prefixes(sentences: Tensor, prefixes: Tensor) -> tuple[list[int], list[int]]:
    """Rows with the same sentence and prefix have the same query; it need be searched only once.

    Args:
        sentences: (rows,), on the CPU.
        prefixes: (rows, t)

    Returns:
        The first row of each distinct prefix, and for each row its place among these.
    """
    places: dict[tuple[int, bytes], int] = {}
    first: list[int] = []
    of_row: list[int] = []
    for number, (sentence, prefix) in enumerate(zip(sentences.tolist(), prefixes.cpu().numpy(), strict=True)):
        place = places.setdefault((sentence, prefix.tobytes()), len(first))
        if place == len(first):
            first.append(number)
        of_row.append(place)
    return first, of_row

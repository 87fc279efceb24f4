"""One step of decoding with neighbours: query, retrieve, combine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from knn_seq.combine import Combiner, CombinerInputs, mix_vocabulary
from knn_seq.decoding.outage import Outage
from knn_seq.decoding.pointers import Pointers
from knn_seq.decoding.searches import Searches
from knn_seq.decoding.skip import SkipNetwork
from knn_seq.index import Neighbours
from knn_seq.models import Source, Step
from knn_seq.retrieve import Retriever
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.settings import SearchSettings


class KnnBatch:
    """Adds neighbours to the steps of one batch: a `StepHook`.

    Args:
        retriever: Finds neighbours.
        combiner: Weighs them.
        settings: How many neighbours, and in how many sentences they are looked for.
        sources: The sentences of the batch.
        stopwatch: Told what searching and combining take.
        outage: What is known of the index from earlier batches.
        skip: Says which rows need no search; None: all are searched.
        pointers: Give neighbours without a search where they can; None: all are searched.
        searches: Told how many rows wanted neighbours, and how many were searched.
    """

    def __init__(
        self,
        retriever: Retriever,
        combiner: Combiner,
        settings: SearchSettings,
        sources: Sequence[Source],
        stopwatch: Stopwatch | None = None,
        outage: Outage | None = None,
        skip: SkipNetwork | None = None,
        pointers: Pointers | None = None,
        searches: Searches | None = None,
    ) -> None:
        self.retriever, self.combiner, self.settings = retriever, combiner, settings
        self.stopwatch, self.outage, self.skip = stopwatch or Stopwatch(), outage or Outage(), skip
        self.pointers, self.searches = pointers, searches or Searches()
        self._may_repeat = not retriever.on_accelerator  # until all prefixes differ: then those they grow into do too
        with self.stopwatch.timing("search"):
            # In a tuple: what is prepared may be None, and None is no answer.
            self.prepared = self.outage.ask(lambda: (retriever.prepare(sources, settings),), settings)

    def __call__(self, step: Step) -> Tensor:
        """The mixture's log-probabilities, (rows, vocabulary)."""
        with self.stopwatch.timing("search"):
            finished = None if self.retriever.on_accelerator else step.finished
            rows = self.rows_to_search(step.queries, step.log_probs, finished)
            neighbours = self.neighbours(step.queries, step.sentences, rows, step.prefixes)
        with self.stopwatch.timing("combination"):
            inputs = combiner_inputs(self.combiner.best_log_probs, step.queries, neighbours, step.log_probs)
            return mix_vocabulary(step.log_probs, neighbours, self.combiner.combine(inputs, self.settings))

    def rows_to_search(self, queries: Tensor, log_probs: Tensor, finished: Tensor | None = None) -> Tensor | None:
        """The rows whose neighbours are wanted, (rows,) bool; None: all.

        Args:
            queries: (rows, dimension)
            log_probs: log p_MT, (rows, n), with the most likely token of each row among the n.
            finished: Rows that are complete, (rows,) bool.
        """
        unfinished = None if finished is None else ~finished
        self.searches.wanted += len(queries) if unfinished is None else int(unfinished.sum())
        if self.skip is None:
            return unfinished
        needed = self.skip.needed(queries, log_probs.amax(dim=1))
        return needed if unfinished is None else needed & unfinished

    def neighbours(
        self, queries: Tensor, sentences: Tensor, rows: Tensor | None = None, prefixes: Tensor | None = None
    ) -> Neighbours:
        """The neighbours of each row; there are none while the index does not answer.

        Args:
            queries: (rows, dimension)
            sentences: For each row its sentence in the batch, (rows,), on the CPU.
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
        if not self.prepared or (rows is not None and not rows.any()):
            return nothing
        if rows is None:
            found = self.outage.ask(lambda: self._search(queries, sentences, prefixes), self.settings)
            return found or nothing
        some = (queries[rows], sentences[rows.cpu()], None if prefixes is None else prefixes[rows], False)
        found = self.outage.ask(lambda: self._search(*some), self.settings)
        return found.scatter(rows) if found else nothing

    def _search(self, queries: Tensor, sentences: Tensor, prefixes: Tensor | None, all_rows: bool = True) -> Neighbours:
        (prepared,) = self.prepared or (None,)
        of_row = None
        if prefixes is not None and self._may_repeat:
            first, of_row = distinct_prefixes(sentences, prefixes)
            if len(first) < len(queries):
                queries, sentences = queries[first], sentences[first]
            else:
                of_row, self._may_repeat = None, not all_rows
        found = self.retriever.retrieve(queries, sentences, self.settings, prepared)
        self.outage.over(self.settings)
        return found if of_row is None else found.rows(torch.tensor(of_row, device=queries.device))


def combiner_inputs(best: int, queries: Tensor, neighbours: Neighbours, log_probs: Tensor) -> CombinerInputs:
    """What a combiner may look at.

    Args:
        best: How many of the largest log-probabilities.
        queries: (rows, dimension)
        neighbours: Those of each row.
        log_probs: log p_MT of the vocabulary, (rows, vocabulary).
    """
    if best == 1:  # several times faster than to look for more
        largest = log_probs.amax(dim=1, keepdim=True)
    else:
        largest = log_probs.topk(best, dim=1).values if best else log_probs[:, :0]
    return CombinerInputs(queries, neighbours, log_probs.gather(1, neighbours.values), largest)


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

"""One step of decoding with neighbours: query, retrieve, combine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from knn_seq.combine import Combiner
from knn_seq.models import Source, Step
from knn_seq.neighbours import Neighbours
from knn_seq.outage import Outage
from knn_seq.retrieve import Retriever
from knn_seq.settings import SearchSettings
from knn_seq.stopwatch import Stopwatch


class NeighbourSteer:
    """Steers a model's decoding of one batch by retrieved neighbours.

    Args:
        retriever: Finds neighbours.
        combiner: Mixes their votes with the model's distribution.
        settings: How many neighbours, in how many sentences they are looked for, and where the model needs none.
        sources: The sentences of the batch.
        stopwatch: Told what searching and combining take.
        outage: What is known of the index from earlier batches.
    """

    def __init__(
        self,
        retriever: Retriever,
        combiner: Combiner,
        settings: SearchSettings,
        sources: Sequence[Source],
        stopwatch: Stopwatch | None = None,
        outage: Outage | None = None,
    ) -> None:
        self.retriever, self.combiner, self.settings = retriever, combiner, settings
        self.k, self.sure = settings.k, settings.sure
        self.stopwatch, self.outage = stopwatch or Stopwatch(), outage or Outage()
        self._may_repeat = not retriever.on_accelerator  # until all prefixes differ: then those they grow into do too
        with self.stopwatch.timing("search"):
            # In a tuple: what is prepared may be None, and None is no answer.
            self.prepared = self.outage.ask(lambda: (retriever.prepare(sources, settings.subset_size),), settings)

    def __call__(self, step: Step) -> Tensor:
        """The mixture's log-probabilities, (rows, vocabulary)."""
        with self.stopwatch.timing("search"):
            neighbours = self._where_in_reach(step)
        with self.stopwatch.timing("combination"):
            return self.combiner.combine(step.log_probs, neighbours)

    def _where_in_reach(self, step: Step) -> Neighbours:
        """No row has neighbours while the index is out of reach."""
        found = self.outage.ask(lambda: self._where_wanted(step), self.settings) if self.prepared else None
        return Neighbours.none(len(step.queries), self.k, step.queries.device) if found is None else found

    def _where_wanted(self, step: Step) -> Neighbours:
        """Rows that are finished, or in which the model is sure, have no neighbours."""
        wanted = self._wanted(step)
        if wanted is None:
            return self._neighbours(step.queries, step.sentences, step.prefixes, every_row=True)
        if not wanted.any():
            return Neighbours.none(len(wanted), self.k, wanted.device)
        found = self._neighbours(step.queries[wanted], step.sentences[wanted.cpu()], step.prefixes[wanted])
        return found.spread(wanted)

    def _wanted(self, step: Step) -> Tensor | None:
        """The rows whose neighbours are wanted, (rows,) bool; None: all."""
        unfinished = None if step.finished is None or self.retriever.on_accelerator else ~step.finished
        if self.sure is None:
            return unfinished
        unsure = unsure_rows(step.log_probs.amax(dim=1), self.sure)
        return unsure if unfinished is None else unsure & unfinished

    def _neighbours(self, queries: Tensor, sentences: Tensor, prefixes: Tensor, every_row: bool = False) -> Neighbours:
        if self._may_repeat:
            first, of_row = distinct_prefixes(sentences, prefixes)
            if len(first) < len(queries):
                found = self._retrieved(queries[first], sentences[first])
                return found.rows(torch.tensor(of_row, device=queries.device))
            self._may_repeat = not every_row
        return self._retrieved(queries, sentences)

    def _retrieved(self, queries: Tensor, sentences: Tensor) -> Neighbours:
        (prepared,) = self.prepared or (None,)
        found = self.retriever.retrieve(queries, sentences, self.k, prepared)
        self.outage.over(self.settings)
        return found


def unsure_rows(best_log_probs: Tensor, sure: float) -> Tensor:
    """Where neighbours are asked, (rows,) bool.

    Args:
        best_log_probs: log p_MT of the model's most likely token, (rows,).
        sure: The probability from which on the model is left alone.
    """
    return best_log_probs < math.log(sure)


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

"""One step of decoding with neighbours: query, retrieve, combine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from knn_seq.combine import Combiner
from knn_seq.models import Source, Step
from knn_seq.neighbours import Neighbours
from knn_seq.retrieve import Retriever
from knn_seq.settings import SearchSettings


class NeighbourSteer:
    """Steers a model's decoding of one batch by retrieved neighbours.

    Args:
        retriever: Finds neighbours.
        combiner: Mixes their votes with the model's distribution.
        settings: How many neighbours, and in how many sentences they are looked for.
        sources: The sentences of the batch.
    """

    def __init__(
        self, retriever: Retriever, combiner: Combiner, settings: SearchSettings, sources: Sequence[Source]
    ) -> None:
        self.retriever, self.combiner, self.k = retriever, combiner, settings.k
        self.prepared = retriever.prepare(sources, settings.subset_size)

    def __call__(self, step: Step) -> Tensor:
        """The mixture's log-probabilities, (rows, vocabulary)."""
        return self.combiner.combine(step.log_probs, self._neighbours(step))

    def _neighbours(self, step: Step) -> Neighbours:
        queries, sentences = step.queries, step.sentences
        if not self.retriever.on_accelerator:
            first, of_row = distinct_prefixes(sentences, step.prefixes)
            if len(first) < len(queries):
                found = self.retriever.retrieve(queries[first], sentences[first], self.k, self.prepared)
                return found.rows(of_row.to(queries.device))
        return self.retriever.retrieve(queries, sentences, self.k, self.prepared)


def distinct_prefixes(sentences: Tensor, prefixes: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with the same sentence and prefix have the same query; it need be searched only once.

    Args:
        sentences: (rows,), on the CPU.
        prefixes: (rows, t)

    Returns:
        The first row of each distinct prefix, (distinct,), and for each row its place among these, (rows,); on the CPU.
    """
    rows = torch.cat([sentences.unsqueeze(1), prefixes.cpu()], dim=1).numpy()
    places: dict[bytes, int] = {}
    first: list[int] = []
    of_row: list[int] = []
    for number, row in enumerate(rows):
        place = places.setdefault(row.tobytes(), len(first))
        if place == len(first):
            first.append(number)
        of_row.append(place)
    return torch.tensor(first), torch.tensor(of_row)

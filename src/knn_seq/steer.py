"""One step of decoding with neighbours: query, retrieve, combine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from knn_seq.combine import Combiner
from knn_seq.models import Source, Step
from knn_seq.retrieve import Retriever


class NeighbourSteer:
    """Steers a model's decoding of one batch by retrieved neighbours.

    Args:
        retriever: Finds neighbours.
        combiner: Mixes their votes with the model's distribution.
        k: How many neighbours.
        sources: The sentences of the batch.
    """

    def __init__(self, retriever: Retriever, combiner: Combiner, k: int, sources: Sequence[Source]) -> None:
        self.retriever, self.combiner, self.k = retriever, combiner, k
        self.prepared = retriever.prepare(sources)

    def __call__(self, step: Step) -> Tensor:
        """The mixture's log-probabilities, (rows, vocabulary)."""
        queries, sentences = step.queries, step.sentences
        first, of_row = distinct_prefixes(sentences, step.prefixes)
        if len(first) == len(queries):
            neighbours = self.retriever.retrieve(queries, sentences, self.k, self.prepared)
        else:
            found = self.retriever.retrieve(queries[first], sentences[first], self.k, self.prepared)
            neighbours = found.rows(of_row)
        return self.combiner.combine(step.log_probs, neighbours)


def distinct_prefixes(sentences: Tensor, prefixes: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with the same sentence and prefix have the same query; it need be searched only once.

    Args:
        sentences: (rows,)
        prefixes: (rows, t)

    Returns:
        The first row of each distinct prefix, (distinct,), and for each row its place among these, (rows,).
    """
    rows = torch.cat([sentences.unsqueeze(1), prefixes], dim=1).cpu().numpy()
    places: dict[bytes, int] = {}
    first: list[int] = []
    of_row: list[int] = []
    for number, row in enumerate(rows):
        place = places.setdefault(row.tobytes(), len(first))
        if place == len(first):
            first.append(number)
        of_row.append(place)
    return torch.tensor(first, device=prefixes.device), torch.tensor(of_row, device=prefixes.device)

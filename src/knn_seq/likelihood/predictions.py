from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.models import Model, Scored, Source, TokenPair
from knn_seq.models.batching import length_batches
from knn_seq.neighbours import Neighbours
from knn_seq.progress import Progress
from knn_seq.retrieve import Retriever

OWN_SENTENCE_MARGIN = 24  # further neighbours asked for where those of a token's own sentence are dropped
SCORE_TOKENS = 768  # a batch's logits must fit into memory, whatever the vocabulary

Locate = Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.int64]]]
"""The sentence of each entry, and the entry's place there; see `DatastoreFolder.locate`."""


class Reference(NamedTuple):
    """A sentence with the translation that it should have."""

    source: Source
    target: Sequence[int]  # the end-of-sentence token last
    sentence: int = -1  # its number, if it is one of those that are searched; it does not vouch for itself


@dataclass(frozen=True)
class Predictions:
    """What model and neighbours say to each token of some references, a row a token, on the CPU."""

    neighbours: Neighbours  # (tokens, k)
    targets: Tensor  # (tokens,): the right tokens
    log_probs: Tensor  # (tokens,): log p_MT of these
    choice_log_probs: Tensor  # (tokens,): log p_MT of the tokens that the model holds most likely

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.targets)

    def rows(self, index: Tensor | slice) -> Predictions:
        """Those of some tokens."""
        return Predictions(
            self.neighbours.rows(index), self.targets[index], self.log_probs[index], self.choice_log_probs[index]
        )


def predict(
    retriever: Retriever,
    model: Model,
    references: Sequence[Reference],
    k: int,
    sizes: Sequence[int | None] = (None,),
    locate: Locate | None = None,
    label: str = "likelihood",
    quiet: bool = False,
) -> list[Predictions]:
    """Read references once under teacher forcing and ask for the neighbours of each of their tokens.

    Args:
        retriever: Finds neighbours.
        model: Makes the queries.
        references: The sentences.
        k: How many neighbours.
        sizes: For a retriever that searches only some sentences: in how many; predictions are made for each.
        locate: The sentence of each entry; needed for references that are among what is searched.
        label: What the progress bar is called.
        quiet: Show no progress.

    Returns:
        The predictions for each of the sizes; none at all without references.
    """
    parts: list[list[Predictions]] = [[] for _ in sizes]
    with Progress(label, len(references), "sentences", quiet=quiet) as progress:
        for batch in _batches(references):
            scored = model.score([TokenPair(one.source.tokens, one.target) for one in batch])
            queries = scored.keys.float()
            for part, size in zip(parts, sizes, strict=True):
                part.append(_predictions(_neighbours(retriever, queries, batch, k, size, locate), batch, scored))
            progress.update(len(batch))
    return [_joined(part) for part in parts if part]


def _batches(references: Sequence[Reference]) -> Iterator[list[Reference]]:
    source_lengths = np.array([len(one.source.tokens) for one in references], np.int64)
    target_lengths = np.array([len(one.target) for one in references], np.int64)
    for batch in length_batches(source_lengths, target_lengths, SCORE_TOKENS):
        yield [references[i] for i in batch]


def _neighbours(
    retriever: Retriever, queries: Tensor, batch: list[Reference], k: int, size: int | None, locate: Locate | None
) -> Neighbours:
    sentences = torch.arange(len(batch)).repeat_interleave(torch.tensor([len(one.target) for one in batch]))
    prepared = retriever.prepare([one.source for one in batch], size)
    if locate is None:
        return _on_cpu(retriever.retrieve(queries, sentences, k, prepared))
    found = _on_cpu(retriever.retrieve(queries, sentences, k + OWN_SENTENCE_MARGIN, prepared))
    own = np.array([one.sentence for one in batch])[sentences.numpy()]
    same = torch.from_numpy(locate(found.ids.numpy())[0] == own[:, None])
    return _without(found, same).nearest(k)


def _predictions(neighbours: Neighbours, batch: list[Reference], scored: Scored) -> Predictions:
    targets = torch.tensor([token for one in batch for token in one.target])
    return Predictions(neighbours, targets, scored.log_probs.cpu(), scored.choice_log_probs.cpu())


def _on_cpu(neighbours: Neighbours) -> Neighbours:
    return Neighbours(neighbours.distances.cpu(), neighbours.values.cpu(), neighbours.ids.cpu())


def _without(neighbours: Neighbours, dropped: Tensor) -> Neighbours:
    """The neighbours that are not dropped, still nearest first; their places at the end become empty."""
    order = dropped.to(torch.int8).argsort(dim=1, stable=True)
    gone = dropped.gather(1, order)
    return Neighbours(
        neighbours.distances.gather(1, order).masked_fill(gone, torch.inf),
        neighbours.values.gather(1, order).masked_fill(gone, 0),
        neighbours.ids.gather(1, order).masked_fill(gone, -1),
    )


def _joined(parts: Sequence[Predictions]) -> Predictions:
    neighbours = [part.neighbours for part in parts]
    return Predictions(
        Neighbours(
            torch.cat([each.distances for each in neighbours]),
            torch.cat([each.values for each in neighbours]),
            torch.cat([each.ids for each in neighbours]),
        ),
        torch.cat([part.targets for part in parts]),
        torch.cat([part.log_probs for part in parts]),
        torch.cat([part.choice_log_probs for part in parts]),
    )

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from knn_seq.combine import COMBINERS, CombinerInputs
from knn_seq.decoding import KnnBatch, KnnDecoder
from knn_seq.decoding.searches import Searches
from knn_seq.decoding.skip import position_by_position
from knn_seq.decoding.step import combiner_inputs
from knn_seq.index import Neighbours
from knn_seq.models import Source, TokenPair
from knn_seq.models.batching import length_batches, pad
from knn_seq.runtime.progress import Progress
from knn_seq.settings import SearchSettings

OWN_SENTENCE_MARGIN = 24  # further neighbours asked for where those of a token's own sentence are dropped
SCORE_TOKENS = 768  # a batch's logits must fit into memory, whatever the vocabulary


class Reference(NamedTuple):
    """A sentence with a translation whose tokens are predicted."""

    source: Source
    target: Sequence[int]  # the end-of-sentence token last
    sentence: int = -1  # its number, if it is one of those that are searched: its own entries are dropped


@dataclass(frozen=True)
class Predictions:
    """What model and neighbours predict at each token of some references, a row a token, on the CPU."""

    inputs: CombinerInputs
    targets: Tensor  # (tokens,): the tokens of the references
    log_probs: Tensor  # (tokens,): log p_MT of these
    choices: Tensor  # (tokens,): the tokens that the model alone holds most likely
    choice_log_probs: Tensor  # (tokens,): log p_MT of these
    positions: Tensor  # (tokens,): the place of each in its reference

    @property
    def neighbours(self) -> Neighbours:
        """The neighbours of each token."""
        return self.inputs.neighbours

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.targets)

    def rows(self, index: Tensor | slice) -> Predictions:
        """Those of some tokens."""
        return Predictions(
            self.inputs.rows(index),
            self.targets[index],
            self.log_probs[index],
            self.choices[index],
            self.choice_log_probs[index],
            self.positions[index],
        )

    @classmethod
    def join(cls, parts: Sequence[Predictions]) -> Predictions:
        """The tokens of all parts."""
        inputs = CombinerInputs(
            torch.cat([part.inputs.queries for part in parts]),
            Neighbours.join([part.neighbours for part in parts]),
            torch.cat([part.inputs.value_log_probs for part in parts]),
            torch.cat([part.inputs.best_log_probs for part in parts]),
        )
        names = ("targets", "log_probs", "choices", "choice_log_probs", "positions")
        return cls(inputs, *(torch.cat([getattr(part, name) for part in parts]) for name in names))


def predict(
    decoder: KnnDecoder,
    references: Sequence[Reference],
    settings: Sequence[SearchSettings],
    label: str = "likelihood",
    best_log_probs: int | None = None,
) -> list[Predictions]:
    """Read references once under teacher forcing and ask for the neighbours of each of their tokens.

    Args:
        decoder: The model, and what it searches.
        references: The sentences.
        settings: How is searched; predictions are made for each of them, which have the same combiner.
        label: What the progress bar is called.
        best_log_probs: How many of the model's largest log-probabilities are kept; None: as many as the combiner needs.

    Returns:
        The predictions for each of the settings; none at all without references.
    """
    parts: list[list[Predictions]] = [[] for _ in settings]
    with Progress(label, len(references), "sentence") as progress:
        for numbers, made in predict_batches(decoder, references, settings, best_log_probs):
            for part, predictions in zip(parts, made, strict=True):
                part.append(predictions)
            progress.update(len(numbers))
    return [Predictions.join(part) for part in parts if part]


def predict_batches(
    decoder: KnnDecoder,
    references: Sequence[Reference],
    settings: Sequence[SearchSettings],
    best_log_probs: int | None = None,
    searches: Sequence[Searches | None] | None = None,
) -> Iterator[tuple[list[int], list[Predictions]]]:
    """The same batch by batch, in batches of similar lengths: which references, and their predictions.

    Each of the `searches` is told how many searches the settings in its place wanted and made.
    """
    counts = searches or [None] * len(settings)
    source_lengths = np.array([len(one.source.tokens) for one in references], np.int64)
    target_lengths = np.array([len(one.target) for one in references], np.int64)
    for batch in length_batches(source_lengths, target_lengths, SCORE_TOKENS):
        numbers = batch.tolist()
        some = [references[number] for number in numbers]
        yield numbers, _predict_batch(decoder, some, settings, best_log_probs, counts)


def _predict_batch(
    decoder: KnnDecoder,
    batch: list[Reference],
    settings: Sequence[SearchSettings],
    best_log_probs: int | None,
    searches: Sequence[Searches | None],
) -> list[Predictions]:
    keys, log_probs = decoder.model.score([TokenPair(one.source.tokens, one.target) for one in batch])
    targets = torch.tensor([token for one in batch for token in one.target], device=log_probs.device)
    positions = torch.cat([torch.arange(len(one.target)) for one in batch])
    best = log_probs.max(dim=1)
    made = []
    for each, counted in zip(settings, searches, strict=True):
        neighbours = _neighbours(decoder, keys, log_probs, batch, each, counted).to(keys.device)
        kept = COMBINERS.get(each.combiner).best_log_probs if best_log_probs is None else best_log_probs
        inputs = combiner_inputs(kept, keys, neighbours, log_probs)
        of_targets = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
        made.append(
            Predictions(
                CombinerInputs(
                    inputs.queries.cpu(),
                    neighbours.to("cpu"),
                    inputs.value_log_probs.cpu(),
                    inputs.best_log_probs.cpu(),
                ),
                *(part.cpu() for part in (targets, of_targets, best.indices, best.values, positions)),
            )
        )
    return made


def _neighbours(
    decoder: KnnDecoder,
    queries: Tensor,
    log_probs: Tensor,
    batch: list[Reference],
    settings: SearchSettings,
    searches: Searches | None,
) -> Neighbours:
    """The neighbours of each token as decoding with these settings would find them, without its own sentence's."""
    sentences = torch.arange(len(batch)).repeat_interleave(torch.tensor([len(one.target) for one in batch]))
    own = torch.tensor([one.sentence for one in batch])
    held_out = bool((own >= 0).any())
    asked = replace(settings, k=settings.k + OWN_SENTENCE_MARGIN, pointers=None) if held_out else settings
    knn = decoder.batch([one.source for one in batch], asked, searches=searches)
    if knn is None:
        return Neighbours.none(len(queries), settings.k, queries.device)
    knn.searches.wanted += len(queries)
    if knn.pointers is not None:
        return _step_by_step(knn, queries, [one.target for one in batch])

    def find(rows: Tensor | slice) -> Neighbours:
        found = knn.neighbours(queries[rows], sentences[rows])
        if not held_out:
            return found
        of_entries = torch.from_numpy(decoder.store.locate(found.ids.cpu().numpy())[0])
        itself = own[sentences[rows]].unsqueeze(1)
        return found.to("cpu").without((of_entries == itself) & (itself >= 0)).nearest(settings.k)

    if knn.skipping is None:
        return find(slice(None))
    parts, order = [], []
    written = torch.tensor([token for one in batch for token in one.target])
    for rows, parents in position_by_position([len(one.target) for one in batch]):
        own_log_probs = log_probs[rows]
        best, of = own_log_probs.amax(dim=1), partial(own_log_probs.gather, 1)
        needed = knn.skipping.needed(parents, written[rows - 1], best, of)
        nothing = Neighbours.none(len(rows), settings.k, queries.device)
        found = find(rows[needed]).scatter(needed) if needed.any() else nothing
        knn.skipping.found(needed, found)
        parts.append(found.to("cpu"))
        order.append(rows)
    return Neighbours.join(parts).rows(torch.cat(order).argsort())


def _step_by_step(knn: KnnBatch, queries: Tensor, targets: list[Sequence[int]]) -> Neighbours:
    """The neighbours of all tokens, where those of a token depend on what was found for the one before it.

    Args:
        knn: What adds neighbours to the batch.
        queries: (tokens, dimension), sentence after sentence.
        targets: The tokens of each sentence.
    """
    lengths = np.array([len(target) for target in targets])
    starts = np.cumsum(lengths) - lengths
    padded, _ = pad(targets, 0, torch.device("cpu"))
    parts, order = [], []
    for step in range(int(lengths.max())):
        sentences = torch.from_numpy(np.flatnonzero(lengths > step))
        places = torch.from_numpy(starts)[sentences] + step
        there = places.to(queries.device)
        parts.append(knn.neighbours(queries[there], sentences, None, padded[sentences, :step]))
        order.append(there)
    return Neighbours.join(parts).rows(torch.cat(order).argsort())

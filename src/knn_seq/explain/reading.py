"""Translations read again under teacher forcing: what the model and the neighbours think of each token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from knn_seq.combine import COMBINERS
from knn_seq.likelihood.predictions import SCORE_TOKENS
from knn_seq.models import Scored, Source, TokenPair
from knn_seq.models.batching import length_batches
from knn_seq.neighbours import Neighbours
from knn_seq.settings import SearchSettings
from knn_seq.steer import unsure_rows
from knn_seq.translate import Translator
from knn_seq.translation import Translation


@dataclass(frozen=True)
class Reading:
    """Some translations read again, a row a token, translation after translation."""

    numbers: list[int]  # which translations
    sizes: list[int]  # the tokens of each
    tokens: Tensor  # (rows,): what was written
    choices: Tensor  # (rows,): the token that the model alone holds most likely
    neighbours: Neighbours
    shares: Tensor  # (rows, k): of p_kNN, that each neighbour brings to its value
    weights: Tensor  # (rows,): of the neighbours in the mixture
    model: Tensor  # (rows,) float64: p_MT of the token
    votes: Tensor  # (rows,) float64: p_kNN of the token
    mixture: Tensor  # (rows,) float64: p of the token
    choice_mixture: Tensor  # (rows,) float64: p of the model's choice

    @property
    def changed(self) -> Tensor:
        """Where the neighbours lifted the token over the model's choice, (rows,) bool."""
        return (self.tokens != self.choices) & (self.mixture > self.choice_mixture)


def read_again(
    translator: Translator, translations: Sequence[Translation], search: SearchSettings
) -> Iterator[Reading]:
    """Read translations in batches of similar lengths; empty ones are passed over.

    Args:
        translator: The translator.
        translations: What it, or somebody else, made of their sources.
        search: How neighbours are found and how much they count.
    """
    written = [number for number, translation in enumerate(translations) if translation.tokens]
    if not written:
        return
    sources, _ = translator.read([translations[number].source for number in written])
    source_lengths = np.array([len(source.tokens) for source in sources], np.int64)
    target_lengths = np.array([len(translations[number].tokens) for number in written], np.int64)
    for batch in length_batches(source_lengths, target_lengths, SCORE_TOKENS):
        numbers = [written[i] for i in batch]
        targets = [translations[number].tokens for number in numbers]
        yield _read_batch(translator, numbers, [sources[i] for i in batch], targets, search)


def _read_batch(
    translator: Translator,
    numbers: list[int],
    sources: list[Source],
    targets: list[list[int]],
    search: SearchSettings,
) -> Reading:
    scored = translator.model.score([TokenPair(s.tokens, target) for s, target in zip(sources, targets, strict=True)])
    sizes = [len(target) for target in targets]
    neighbours = _neighbours(translator, scored, sources, sizes, search)
    tokens = torch.tensor([token for target in targets for token in target], device=scored.choices.device)
    combiner = COMBINERS.get(search.combiner)(search)
    shares, weights = combiner.votes(neighbours), combiner.mixture_weights(neighbours)
    # In float64 also a token is possible that float32 would hold impossible.
    model, choice = scored.log_probs.double().exp(), scored.choice_log_probs.double().exp()
    votes, choice_votes = _votes_for(tokens, neighbours, shares), _votes_for(scored.choices, neighbours, shares)
    weight = weights.double()
    return Reading(
        numbers=numbers,
        sizes=sizes,
        tokens=tokens,
        choices=scored.choices,
        neighbours=neighbours,
        shares=shares,
        weights=weights,
        model=model,
        votes=votes,
        mixture=weight * votes + (1 - weight) * model,
        choice_mixture=weight * choice_votes + (1 - weight) * choice,
    )


def _neighbours(
    translator: Translator, scored: Scored, sources: list[Source], sizes: list[int], search: SearchSettings
) -> Neighbours:
    """The neighbours of each row; none where decoding with these settings would not ask for them."""
    asked = torch.full((len(scored.keys),), search.weight > 0, device=scored.keys.device)
    if search.sure is not None:
        asked &= unsure_rows(scored.choice_log_probs, search.sure)
    if not asked.any():
        return Neighbours.none(len(asked), search.k, asked.device)
    sentences = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))

    def retrieve() -> Neighbours:
        retriever = translator.retriever(search)
        prepared = retriever.prepare(sources, search.subset_size)
        return retriever.retrieve(scored.keys[asked], sentences[asked.cpu()], search.k, prepared)

    found = translator.outage(search).ask(retrieve, search)
    return Neighbours.none(len(asked), search.k, asked.device) if found is None else found.spread(asked)


def _votes_for(tokens: Tensor, neighbours: Neighbours, shares: Tensor) -> Tensor:
    """p_kNN of a token in each row, (rows,) float64."""
    return (shares.double() * (neighbours.values == tokens.unsqueeze(1))).sum(dim=1)

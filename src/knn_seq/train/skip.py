"""Training what skips searches: from the examples of a combiner, which knows what neighbours bring."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from knn_seq.combine import interpolate
from knn_seq.combine.trained import TrainedCombiner
from knn_seq.decoding.skip import SkipNetwork
from knn_seq.likelihood import Predictions
from knn_seq.settings import SearchSettings
from knn_seq.train.examples import Examples
from knn_seq.train.fit import BATCH, BLOCK, narrowed

EPOCHS, LEARNING_RATE, WEIGHT_DECAY = 6, 2e-3, 0.3
LOST_GAIN = 0.05  # of the tokens that neighbours bring, that skipping may lose


class TrainedSkip(NamedTuple):
    """What skips searches, and how many it saves."""

    network: SkipNetwork
    saved: float  # the share of searches on held-out sentences


def train_skip(examples: Examples, combiner: TrainedCombiner, seed: int) -> TrainedSkip:
    """Learn where the model is wrong and neighbours are right, and skip where that is unlikely.

    Args:
        examples: What the combiner was trained on.
        combiner: The trained combiner.
        seed: Of all that is random.
    """
    parts = [part.predictions for part in examples.train]
    joined = Predictions.join(parts)
    queries, certainty = joined.inputs.queries.float(), joined.choice_log_probs
    wanted = (gain(joined, combiner) > 0).float()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        network = SkipNetwork(queries.shape[1])
        network.mean, network.deviation = queries.mean(dim=0), queries.std(dim=0) + 1e-3
        optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        for _ in range(EPOCHS):
            for rows in torch.split(torch.randperm(len(joined)), BATCH):
                odds = network(queries[rows], certainty[rows])
                optimizer.zero_grad()
                functional.binary_cross_entropy_with_logits(odds, wanted[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    network.eval().requires_grad_(False)
    held_out = examples.held_out[0].predictions
    odds = network(held_out.inputs.queries, held_out.choice_log_probs)
    network.threshold, saved = threshold(odds, gain(held_out, combiner))
    return TrainedSkip(network, saved)


def threshold(odds: Tensor, gains: Tensor) -> tuple[Tensor, float]:
    """Where to draw the line, and the share of rows below it.

    Args:
        odds: What the network says of each row, (rows,).
        gains: What searching it brings: 1, 0 or -1 right tokens, (rows,).
    """
    ascending, order = odds.sort()
    total = gains.sum()
    allowed = gains[order].cumsum(dim=0) <= LOST_GAIN * total
    allowed[:-1] &= ascending[:-1] < ascending[1:]  # rows with equal odds are skipped together
    if total <= 0 or not allowed.any():
        return torch.tensor(-torch.inf), 0.0
    last = int(allowed.nonzero().max())
    return ascending[last].clone(), (last + 1) / len(odds)


def gain(predictions: Predictions, combiner: TrainedCombiner) -> Tensor:
    """For each token, whether neighbours make the most likely one right (1), wrong (-1), or neither (0)."""
    gains = []
    for start in range(0, len(predictions), BLOCK):
        block = narrowed(predictions.rows(slice(start, start + BLOCK)), combiner)
        right, before = most_probable(block, combiner) == block.targets, block.choices == block.targets
        gains.append(right.float() - before.float())
    return torch.cat(gains)


def most_probable(predictions: Predictions, combiner: TrainedCombiner) -> Tensor:
    """The most likely token of the mixture at each place, (tokens,): one that was retrieved, or the model's choice."""
    inputs, neighbours = predictions.inputs, predictions.neighbours
    combination = combiner.combine(inputs, SearchSettings(k=neighbours.values.shape[1], weight=1.0))
    weights = combination.row_weights().unsqueeze(1)
    tokens = torch.cat((neighbours.values, predictions.choices.unsqueeze(1)), dim=1)
    log_probs = torch.cat((inputs.value_log_probs, predictions.choice_log_probs.unsqueeze(1)), dim=1)
    same = tokens.unsqueeze(2) == neighbours.values.unsqueeze(1)  # (tokens, k + 1, k)
    mass = (same * combination.probabilities.unsqueeze(1)).sum(dim=2)
    place = interpolate(log_probs, mass, weights).argmax(dim=1, keepdim=True)
    return tokens.gather(1, place).squeeze(1)

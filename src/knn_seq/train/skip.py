"""Training what skips searches: from the examples of a combiner, which knows where neighbours change a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from knn_seq.combine import interpolate
from knn_seq.combine.trained import TrainedCombiner
from knn_seq.decoding.continuations import FEATURES, Continuations
from knn_seq.decoding.skip import SkipNetwork, position_by_position
from knn_seq.likelihood import Predictions
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.train.examples import Examples
from knn_seq.train.fit import BATCH, BLOCK, narrowed

EPOCHS, LEARNING_RATE, WEIGHT_DECAY = 8, 4e-3, 1e-2
SKIPPED = 0.5  # of the searches while it is trained, at random, so that it knows what was found some steps ago
LOST = 0.015  # of the tokens that neighbours change, that skipping may leave as they were
HALVINGS = 12  # of the interval in which the threshold lies

Decision = Callable[[Tensor, Tensor], Tensor]
"""Which of some rows are searched, (rows,) bool: of their numbers, (rows,), and their features, (rows, features)."""


class TrainedSkip(NamedTuple):
    """What skips searches, and how many it saves."""

    network: SkipNetwork
    saved: float  # the share of searches on the sentences that it was trained on


def train_skip(examples: Examples, combiner: TrainedCombiner, seed: int) -> TrainedSkip | None:
    """Learn where neighbours change the token, and skip where that is unlikely.

    Args:
        examples: What the combiner was trained on.
        combiner: The trained combiner.
        seed: Of all that is random.

    Returns:
        None without a datastore, in whose sentences neighbours could be followed, and if all sentences have one token.
    """
    store, joined = examples.store, Predictions.join([part.predictions for part in examples.train])
    later = joined.positions.nonzero().squeeze(1)  # first tokens are always searched
    if not isinstance(store, DatastoreFolder) or not len(later):
        return None
    wanted, certainty = changed(joined, combiner).float(), joined.choice_log_probs
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        network = SkipNetwork(combiner.shape.offset, combiner.shape.scale)
        optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        for _ in range(EPOCHS):
            features = _features(joined, network, store)
            for rows in torch.split(later[torch.randperm(len(later))], BATCH):
                odds = network(certainty[rows], features[rows])
                optimizer.zero_grad()
                functional.binary_cross_entropy_with_logits(odds, wanted[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    network.eval().requires_grad_(False)
    own = Predictions.join([parts[0].predictions for parts in (examples.train, examples.held_out) if parts])
    return with_threshold(network, own, changed(own, combiner), store)


def with_threshold(
    network: SkipNetwork, predictions: Predictions, changes: Tensor, store: DatastoreFolder
) -> TrainedSkip:
    """Draw the line where as many searches are skipped as the changes allow that they bring.

    Args:
        network: The trained network, whose threshold is set.
        predictions: Tokens of complete sentences.
        changes: Which of them neighbours change, (tokens,) bool.
        store: Where they were found.
    """

    def skipped(threshold: float) -> Tensor:
        return ~decided(
            predictions,
            network,
            store,
            lambda rows, features: network(predictions.choice_log_probs[rows], features) > threshold,
        )

    allowed, most = LOST * int(changes.sum()), network(predictions.choice_log_probs, _nothing(predictions)).abs().max()
    lowest, highest = -2 * most.item() - 10, 2 * most.item() + 10
    for _ in range(HALVINGS if allowed else 0):
        middle = (lowest + highest) / 2
        if int((skipped(middle) & changes).sum()) <= allowed:
            lowest = middle
        else:
            highest = middle
    network.threshold = torch.tensor(lowest if allowed else -torch.inf)
    return TrainedSkip(network, skipped(network.threshold.item()).float().mean().item())


def decided(predictions: Predictions, network: SkipNetwork, store: DatastoreFolder, decide: Decision) -> Tensor:
    """Which tokens are searched if that is decided one after the other, as decoding does, (tokens,) bool.

    Args:
        predictions: Tokens of complete sentences, all of whose neighbours are known.
        network: Knows usual distances.
        store: Where neighbours were found.
        decide: Asked position by position, but for the first.
    """
    searched = torch.ones(len(predictions), dtype=torch.bool)
    proposed = Continuations.none(0)
    for rows, parents in position_by_position(_lengths(predictions)):
        found = network.continuations(predictions.neighbours.rows(rows), store)
        if (parents < 0).all():
            proposed = found
            continue
        proposed = proposed.rows(parents).after(predictions.targets[rows - 1].numpy(), store)
        choices = proposed.tokens == predictions.choices[rows].unsqueeze(1).numpy()
        searched[rows] = decide(rows, torch.from_numpy(proposed.features(choices)))
        proposed = proposed.renewed(searched[rows].numpy(), found)
    return searched


def changed(predictions: Predictions, combiner: TrainedCombiner) -> Tensor:
    """Whether neighbours change the most likely token, (tokens,) bool."""
    blocks = (predictions.rows(slice(start, start + BLOCK)) for start in range(0, len(predictions), BLOCK))
    return torch.cat([most_probable(narrowed(block, combiner), combiner) != block.choices for block in blocks])


def most_probable(predictions: Predictions, combiner: TrainedCombiner) -> Tensor:
    """The most likely token of the mixture at each place, (tokens,): one that was retrieved, or the model's choice."""
    inputs, neighbours = predictions.inputs, predictions.neighbours
    combination = combiner.combine(inputs, SearchSettings(k=neighbours.values.shape[1], weight=1.0))
    weights = combination.row_weights().unsqueeze(1)
    tokens = torch.cat((neighbours.values, predictions.choices.unsqueeze(1)), dim=1)
    log_probs = torch.cat((inputs.value_log_probs, predictions.choice_log_probs.unsqueeze(1)), dim=1)
    rows = torch.arange(len(tokens)).unsqueeze(1) * (int(tokens.max()) + 1)
    distinct, numbers = torch.unique(rows + tokens, return_inverse=True)  # a token of one row and of another are two
    mass = torch.zeros(len(distinct)).index_add_(0, numbers[:, :-1].flatten(), combination.probabilities.flatten())
    mass = mass[numbers]  # (tokens, k + 1)
    place = interpolate(log_probs, mass, weights).argmax(dim=1, keepdim=True)
    return tokens.gather(1, place).squeeze(1)


def _features(predictions: Predictions, network: SkipNetwork, store: DatastoreFolder) -> Tensor:
    """What is known of each token where searches are skipped at random, (tokens, features)."""
    made = _nothing(predictions)

    def keep(rows: Tensor, features: Tensor) -> Tensor:
        made[rows] = features
        return torch.rand(len(rows)) >= SKIPPED

    decided(predictions, network, store, keep)
    return made


def _nothing(predictions: Predictions) -> Tensor:
    return torch.zeros(len(predictions), FEATURES)


def _lengths(predictions: Predictions) -> Sequence[int]:
    """Of the sentences, each of which begins where a position is 0."""
    starts = (predictions.positions == 0).nonzero().squeeze(1).numpy()
    return np.diff([*starts, len(predictions)]).tolist()  # type: ignore[no-any-return]

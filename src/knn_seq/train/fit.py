"""Training a combiner's network: −log p of the references, without an array over the vocabulary."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from knn_seq.combine import Combiner, interpolate, neighbour_probability
from knn_seq.combine.trained import TrainedCombiner
from knn_seq.likelihood import Predictions
from knn_seq.runtime.progress import Progress
from knn_seq.settings import SearchSettings
from knn_seq.train.examples import Examples, Part

FEWEST_EPOCHS, FEWEST_STEPS = 12, 480  # few examples are seen more often
PATIENCE = 3  # training stops when a third of the epochs brought nothing
BATCH, SMALLEST_BATCH = 512, 64  # tokens
LEARNING_RATE, WEIGHT_DECAY = 3e-3, 1e-4
FEWER_NEIGHBOURS = 0.25  # of the batches have them, so that a smaller k works as well
# Of λ, and of a token that no neighbour has: the logarithm of their product is finite, and so is its gradient.
LEAST_WEIGHT, LEAST_PROBABILITY = 1e-7, 1e-30
BLOCK = 1 << 14


def fit(combiner: TrainedCombiner, examples: Examples, seed: int) -> None:
    """Train a combiner in place, until held-out sentences become no more likely.

    Args:
        combiner: With a new network.
        examples: What it learns from.
        seed: Of the order of the examples.
    """
    generator = torch.Generator().manual_seed(seed)
    network, k = combiner.network, combiner.shape.k
    joined = narrowed(Predictions.join([part.predictions for part in examples.train]), combiner)
    weights = torch.cat([torch.full((len(part.predictions),), part.weight) for part in examples.train])
    weights /= weights.mean()
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    size = min(max(len(joined) // 16, SMALLEST_BATCH), BATCH)
    steps = math.ceil(len(joined) / size)
    epochs = max(FEWEST_EPOCHS, math.ceil(FEWEST_STEPS / steps))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * steps)
    best, best_state = log_likelihood(examples.judged, combiner), copy.deepcopy(network.state_dict())
    waited, done = 0, 0
    with torch.enable_grad(), Progress(f"training {type(combiner).__name__}", epochs * steps, "step") as progress:
        for _ in range(epochs):
            network.train().requires_grad_(True)
            for rows in torch.split(torch.randperm(len(joined), generator=generator), size):
                batch = joined.rows(rows)
                inputs = combiner.perturbed(
                    batch.inputs.nearest(_neighbours(k, generator)),
                    batch.targets,
                    batch.log_probs,
                    done / (epochs * steps),
                    generator,
                )
                likelihoods = token_log_likelihoods(replace(batch, inputs=inputs), combiner)
                optimizer.zero_grad()
                (-(likelihoods * weights[rows]).mean()).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                progress.update(1)
                done += 1
            network.eval().requires_grad_(False)
            likelihood = log_likelihood(examples.judged, combiner)
            waited = 0 if likelihood > best else waited + 1
            if not waited:
                best = likelihood
                best_state = copy.deepcopy(network.state_dict())
            elif waited * PATIENCE >= epochs:
                break
    network.load_state_dict(best_state)


def log_likelihood(parts: Sequence[Part], combiner: Combiner | None, settings: SearchSettings | None = None) -> float:
    """log p of a reference's token, weighted; None: for the model alone.

    Args:
        parts: The examples.
        combiner: Weighs the neighbours.
        settings: What it is asked with; None: all neighbours that it can weigh, and its own λ.
    """
    total = torch.zeros((), dtype=torch.float64)
    for part in parts:
        for start in range(0, len(part.predictions), BLOCK):
            block = part.predictions.rows(slice(start, start + BLOCK))
            made = block.log_probs if combiner is None else token_log_likelihoods(block, combiner, settings)
            total += made.double().sum() * part.weight
    return total.item() / max(sum(len(part.predictions) * part.weight for part in parts), 1e-9)


def token_log_likelihoods(
    predictions: Predictions, combiner: Combiner, settings: SearchSettings | None = None
) -> Tensor:
    """log p of each token, (tokens,); see `log_likelihood`."""
    inputs = predictions.inputs
    if settings is None:
        settings = SearchSettings(k=inputs.neighbours.values.shape[1], weight=1.0)
    if isinstance(combiner, TrainedCombiner):
        inputs = narrowed(predictions, combiner).inputs
    inputs = inputs.nearest(settings.k)
    combination = combiner.combine(inputs, settings)
    probs = neighbour_probability(predictions.targets, inputs.neighbours, combination).clamp(min=LEAST_PROBABILITY)
    return interpolate(predictions.log_probs, probs, combination.row_weights().clamp(min=LEAST_WEIGHT))


def narrowed(predictions: Predictions, combiner: TrainedCombiner) -> Predictions:
    """What the combiner looks at, of what was kept for all of them."""
    inputs = predictions.inputs.nearest(combiner.shape.k)
    best = inputs.best_log_probs[:, : combiner.best_log_probs]
    return replace(predictions, inputs=replace(inputs, best_log_probs=best))


def _neighbours(k: int, generator: torch.Generator) -> int:
    """Mostly k, sometimes a power of two below it."""
    if k == 1 or torch.rand((), generator=generator).item() >= FEWER_NEIGHBOURS:
        return k
    return 1 << int(torch.randint(0, math.ceil(math.log2(k)), (), generator=generator).item())

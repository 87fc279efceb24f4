"""The likelihood of references over a grid of settings, against each combiner's own mixture."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.combine import COMBINERS, CombinerInputs, mix_vocabulary
from knn_seq.decoding.step import combiner_inputs
from knn_seq.index import Neighbours
from knn_seq.likelihood import Grid, Predictions, log_likelihoods, surface, temperatures_for
from knn_seq.settings import SearchSettings

VOCABULARY = 30


def random_predictions(seed, tokens=50, k=8, empty=0.3):
    """Predictions with the complete distributions of the model, (tokens, vocabulary), from which they were taken."""
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.log_softmax(3 * torch.randn(tokens, VOCABULARY, generator=generator), dim=1)
    targets = torch.randint(0, VOCABULARY, (tokens,), generator=generator)
    distances = (40 * torch.rand(tokens, k, generator=generator)).sort(dim=1).values
    values = torch.randint(0, VOCABULARY, (tokens, k), generator=generator)
    values = torch.where(torch.rand(tokens, k, generator=generator) < 0.4, targets.unsqueeze(1), values)
    there = torch.randint(0, k + 1, (tokens,), generator=generator)
    there[torch.rand(tokens, generator=generator) < empty] = 0
    missing = torch.arange(k) >= there.unsqueeze(1)
    neighbours = Neighbours(
        distances.masked_fill(missing, torch.inf),
        values.masked_fill(missing, 0),
        torch.arange(tokens * k).view(tokens, k).masked_fill(missing, -1),
    )
    right = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    best = log_probs.max(dim=1)
    queries = torch.randn(tokens, 4, generator=generator)
    inputs = combiner_inputs(0, queries, neighbours, log_probs)
    return Predictions(inputs, targets, right, best.indices, best.values, torch.zeros_like(targets)), log_probs


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["fixed", "distance"]))
def test_every_point_is_the_mixture_of_decoding(seed, name):
    predictions, log_probs = random_predictions(seed)
    combiner = COMBINERS.get(name)()
    grid = Grid((1, 3, 8), (2.0, 30.0), (0.1, 0.5, 1.0))
    [found] = log_likelihoods(predictions, combiner, grid)
    for i, k in enumerate(grid.k):
        for j, temperature in enumerate(grid.temperatures):
            for n, weight in enumerate(grid.weights):
                chosen = SearchSettings(k=k, temperature=temperature, weight=weight)
                inputs = predictions.inputs.nearest(k)
                mixture = mix_vocabulary(log_probs.clone(), inputs.neighbours, combiner.combine(inputs, chosen))
                own = mixture.gather(1, predictions.targets.unsqueeze(1)).double().mean()
                assert found[i, j, n].item() == pytest.approx(own.item(), abs=1e-5)


def test_blocks_make_no_difference(monkeypatch):
    predictions, _ = random_predictions(3)
    grid, combiner = Grid((2, 8), (5.0, 50.0), (0.3, 0.6)), COMBINERS.get("fixed")()
    at_once = log_likelihoods(predictions, combiner, grid, (0.0, 0.05))
    monkeypatch.setattr(surface, "BLOCK", 7)
    in_blocks = log_likelihoods(predictions, combiner, grid, (0.0, 0.05))
    torch.testing.assert_close(in_blocks, at_once)


def test_a_floor_disregards_what_is_never_written():
    """Far neighbours that lift hopeless tokens a little must not cost the certainty of the near ones."""
    generator = torch.Generator().manual_seed(0)
    rows, k = 400, 8
    hopeless = torch.arange(rows) % 4 == 0
    distances = torch.tensor([10.0, *range(100, 107)]).repeat(rows, 1)
    right = torch.zeros(rows, k, dtype=torch.bool)
    right[~hopeless, 0] = True
    right[hopeless, torch.randint(1, k, (int(hopeless.sum()),), generator=generator)] = True
    neighbours = Neighbours(distances, right.to(torch.int64), torch.arange(rows * k).view(rows, k))
    log_probs = torch.where(hopeless, math.log(1e-9), math.log(0.3))
    inputs = CombinerInputs(torch.zeros(rows, 2), neighbours, torch.zeros(rows, k), torch.zeros(rows, 0))
    ones = torch.ones(rows, dtype=torch.int64)
    predictions = Predictions(inputs, ones, log_probs, ones, log_probs, torch.zeros_like(ones))
    grid = Grid((1, 8), temperatures_for("fixed", 50.0), (0.1, 0.5, 0.9))
    plain, floored = log_likelihoods(predictions, COMBINERS.get("fixed")(), grid, (0.0, 0.05))
    assert plain[1].max() > plain[0].max()
    assert floored[0].max() >= floored[1].max()
    assert floored[0].amax(dim=0).argmax() == 2


def test_temperatures_reach_some_times_the_median_for_the_distance_combiner():
    fixed = temperatures_for("fixed", 100.0)
    assert (len(fixed), fixed[0], fixed[-1]) == (15, pytest.approx(3.12, abs=0.02), 400.0)
    wide = temperatures_for("distance", 100.0)
    assert wide[:15] == fixed
    assert wide[-1] == 1600.0
    assert temperatures_for("fixed", 100.0, 4)[::2] == fixed

"""Training on tasks whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from slow_combiners import SLOW, randomise

from knn_seq.combine import COMBINERS, CombinerInputs
from knn_seq.combine.trained import NetworkShape
from knn_seq.errors import KnnSeqError
from knn_seq.index import Neighbours
from knn_seq.likelihood import Predictions
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.train import train
from knn_seq.train.examples import Examples, Part
from knn_seq.train.fit import log_likelihood, token_log_likelihoods

NAMES = sorted(SLOW)
K, DIMENSION, ENTRIES, VOCABULARY = 8, 16, 400, 50


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys")
    rows = np.random.default_rng(2).normal(size=(ENTRIES, DIMENSION)).astype(np.float16)
    rows[ENTRIES // 2 :, : DIMENSION // 2] += 3.0
    folder = DatastoreFolder(path)
    folder.__dict__["keys"] = rows
    return folder


def near_is_right(tokens, seed, missing=0.0):
    """Neighbours that are near have the reference, of which the model knows nothing; far ones are wrong."""
    generator = torch.Generator().manual_seed(seed)
    near = torch.rand(tokens, generator=generator) < 0.5
    targets = torch.randint(0, VOCABULARY, (tokens,), generator=generator)
    distances = torch.where(near, 10.0, 100.0).unsqueeze(1) + torch.rand(tokens, K, generator=generator).sort().values
    wrong = torch.randint(0, VOCABULARY, (tokens, K), generator=generator)
    values = torch.where(near.unsqueeze(1), targets.unsqueeze(1), wrong)
    half = ENTRIES // 2
    ids = torch.randint(0, half, (tokens, K), generator=generator) + half * (~near).unsqueeze(1)
    gone = (torch.rand(tokens, 1, generator=generator) < missing).expand(-1, K)
    neighbours = Neighbours(distances, values, ids).without(gone)
    unlikely, likely = torch.full((tokens,), -4.0), torch.full((tokens,), -0.5)
    log_probs = torch.where(near, unlikely, likely)
    queries = torch.randn(tokens, DIMENSION, generator=generator)
    queries[:, : DIMENSION // 2] += 3 * (~near).unsqueeze(1)
    best = torch.full((tokens, 8), -2.0)
    inputs = CombinerInputs(queries, neighbours, torch.full((tokens, K), -4.0), best)
    return Predictions(inputs, targets, log_probs, targets, log_probs, torch.zeros_like(targets))


def examples(store, tokens=4000, **options):
    return Examples(
        [Part(near_is_right(tokens, 0, **options), 1.0)], [Part(near_is_right(500, 1, **options), 1.0)], 0, store
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_where_neighbours_are_right_for_every_k(name, store):
    some = examples(store)
    made = train(some, SearchSettings(), name, K)
    assert made.log_likelihoods["fixed"] > made.log_likelihoods["model"]
    assert made.log_likelihoods[name] > made.log_likelihoods["fixed"] + 0.1
    held_out = near_is_right(500, 1)
    best = held_out.inputs.best_log_probs[:, : made.combiner.best_log_probs]
    inputs = replace(held_out.inputs, best_log_probs=best)
    weights = made.combiner.combine(inputs, SearchSettings(weight=1.0)).row_weights()
    near = held_out.neighbours.distances[:, 0] < 50
    assert weights[near].mean() > 0.6
    assert weights[~near].mean() < 0.4
    alone = made.log_likelihoods["model"]
    for k in (1, 2, 4):
        assert log_likelihood(some.held_out, made.combiner, SearchSettings(k=k, weight=1.0)) > alone + 0.5


def test_for_a_text_it_begins_as_fixed_and_is_judged_on_what_is_stored(store, monkeypatch):
    monkeypatch.setattr("knn_seq.train.fit.LEARNING_RATE", 0.0)  # it stays where it begins
    own, far = examples(store).held_out[0], Part(near_is_right(500, 2), 1.0)
    far = Part(replace(far.predictions, targets=far.predictions.targets + VOCABULARY), 1.0)  # found by no neighbour
    text = Examples([Part(near_is_right(4000, 0), 1.0)], [own, far], 0, store, (K,))
    made = train(text, SearchSettings(), "learned", K)
    assert made.log_likelihoods["learned"] == pytest.approx(made.log_likelihoods["fixed"], abs=5e-3)  # far is far
    assert made.log_likelihoods["model"] == pytest.approx(log_likelihood([own], None))


@pytest.fixture
def few_steps(monkeypatch):
    """Training that need not become good."""
    monkeypatch.setattr("knn_seq.train.fit.FEWEST_STEPS", 1)
    monkeypatch.setattr("knn_seq.train.fit.FEWEST_EPOCHS", 2)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_weights(name, store):
    first, second, other = (
        train(examples(store, 600), SearchSettings(), name, K, seed).combiner.network.state_dict() for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [1, 3])
def test_rows_without_neighbours_leave_the_weights_numbers(name, k, store):
    made = train(examples(store, 700, missing=0.3), SearchSettings(), name, k)
    assert made.combiner.shape.k == k
    assert all(parameter.isfinite().all() for parameter in made.combiner.network.parameters())
    assert made.log_likelihoods[name] > made.log_likelihoods["model"]


def require_gradients(combiner, predictions):
    likelihoods = token_log_likelihoods(predictions, combiner)
    assert likelihoods.isfinite().all()
    likelihoods.mean().backward()
    gradients = [parameter.grad for parameter in combiner.network.parameters() if parameter.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


def untrained(name, store):
    combiner = COMBINERS.get(name)(NetworkShape(K, DIMENSION, 0.0, 50.0))
    randomise(combiner.network)
    combiner.network.requires_grad_(True)
    combiner.attach(store)
    return combiner


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_neighbours_leave_the_gradients_numbers(name, store):
    require_gradients(untrained(name, store), near_is_right(40, 0, missing=0.5))


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_near_zero_has_a_gradient(name, store):
    """λ may become so small that its product with that of an absent token is 0, whose logarithm has none."""
    combiner = untrained(name, store)
    bias = {"learned": "row.2.bias", "adaptive": "meta.2.bias", "robust": "row.2.bias", "kster": "mixing.2.bias"}[name]
    state = combiner.network.state_dict()
    state[bias][0] = 90.0 if name == "adaptive" else -90.0
    combiner.network.load_state_dict(state)
    require_gradients(combiner, near_is_right(20, 0))


def test_without_any_neighbour_there_is_nothing_to_train(store):
    with pytest.raises(KnnSeqError, match="nothing to train a combiner with"):
        train(examples(store, 50, missing=1.1), SearchSettings(), "learned", K)
    with pytest.raises(KnnSeqError, match="nothing to train a combiner with"):
        train(Examples([], [], 0, store), SearchSettings(), "learned", K)

"""What skips searches is trained: the line that is drawn, and a task whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from knn_seq import Datastore, Translator
from knn_seq.combine import COMBINERS, CombinerInputs, mix_vocabulary
from knn_seq.combine.trained import NetworkShape
from knn_seq.decoding.skip import SkipNetwork
from knn_seq.decoding.step import combiner_inputs
from knn_seq.index import Neighbours
from knn_seq.likelihood import Predictions
from knn_seq.settings import SearchSettings
from knn_seq.train.examples import Examples, Part
from knn_seq.train.fit import fit
from knn_seq.train.skip import changed, decided, most_probable, train_skip, with_threshold

DIMENSION, K = 6, 4


def copied_sentences(store, seed, sentences=400):
    """Stored sentences, each of whose tokens finds the same place in its own sentence, and others farther away.

    In every other sentence the model is wrong at every third token, and the nearest neighbour is right; in the others
    all neighbours agree with the model.
    """
    random = np.random.default_rng(seed)
    values, parts = store.values, []
    for number in random.integers(0, len(values), sentences).tolist():
        entries = np.arange(values.offsets[number], values.offsets[number + 1])
        targets = torch.from_numpy(values.items[entries].astype(np.int64))
        wrong = torch.arange(len(targets)) % 3 == 1 if number % 2 else torch.zeros(len(targets), dtype=torch.bool)
        ids = np.concatenate([entries[:, None], random.integers(0, len(store), (len(entries), K - 1))], axis=1)
        distances = torch.cat([torch.full((len(targets), 1), 0.1), 9 + torch.rand(len(targets), K - 1)], dim=1)
        found = Neighbours(
            distances.sort(dim=1).values, torch.from_numpy(values.items[ids].astype(np.int64)), torch.from_numpy(ids)
        )
        choices = torch.where(wrong, (targets + 1) % 20, targets)
        best, of_targets = torch.full((len(targets),), -0.7), torch.where(wrong, -5.0, -0.7)
        likely = torch.where(found.values == choices.unsqueeze(1), -0.7, -5.0)
        queries = torch.from_numpy(random.normal(size=(len(targets), DIMENSION)).astype(np.float32))
        inputs = CombinerInputs(queries, found, likely, best.unsqueeze(1).expand(-1, 8))
        parts.append(Predictions(inputs, targets, of_targets, choices, best, torch.arange(len(targets))))
    return Predictions.join(parts)


@pytest.fixture(scope="module")
def known_task(number_store):
    store = number_store
    examples = Examples([Part(copied_sentences(store, 0), 1.0)], [Part(copied_sentences(store, 1, 80), 1.0)], 0, store)
    torch.manual_seed(0)
    combiner = COMBINERS.get("learned")(NetworkShape.fitting(examples.train[0].predictions.neighbours, DIMENSION))
    fit(combiner, examples, 0)
    return examples, combiner


def test_a_known_task_is_learned(known_task):
    """That a neighbour continues to say what the model does not shows in what it proposes, before any search."""
    examples, combiner = known_task
    trained = train_skip(examples, combiner, 0)
    new = copied_sentences(examples.store, 2)
    changes, network = changed(new, combiner), trained.network
    assert 0.1 < changes.float().mean() < 0.3
    searched = decided(
        new, network, examples.store, lambda rows, each: network(new.choice_log_probs[rows], each) > network.threshold
    )
    assert searched[changes].float().mean() > 0.97
    later = new.positions > 0
    assert searched[later & ~changes].float().mean() < 0.25
    assert searched[~later].all()
    assert trained.saved == pytest.approx(1 - searched.float().mean().item(), abs=0.05)


def test_the_seed_decides(known_task):
    examples, combiner = known_task
    first, again, other = (train_skip(examples, combiner, seed).network for seed in (0, 0, 1))
    assert torch.equal(again.hidden.weight, first.hidden.weight)
    assert not torch.equal(other.hidden.weight, first.hidden.weight)


@pytest.mark.parametrize("seed", range(4))
def test_the_threshold_loses_no_more_changes_than_allowed(known_task, seed):
    """Of any network: also one that knows nothing, which must hardly skip."""
    examples, _ = known_task
    predictions = copied_sentences(examples.store, seed, 60)
    changes = torch.rand(len(predictions), generator=torch.Generator().manual_seed(seed)) < 0.2
    torch.manual_seed(seed)
    network = SkipNetwork(0.0, 3.0).requires_grad_(False)
    trained = with_threshold(network, predictions, changes, examples.store)
    searched = decided(
        predictions,
        network,
        examples.store,
        lambda rows, each: network(predictions.choice_log_probs[rows], each) > network.threshold,
    )
    assert 50 * int((~searched & changes).sum()) <= int(changes.sum())
    assert trained.saved == pytest.approx((~searched).float().mean().item())


def test_where_neighbours_change_nothing_nothing_is_skipped(known_task):
    examples, _ = known_task
    predictions = copied_sentences(examples.store, 0, 20)
    network = SkipNetwork().requires_grad_(False)
    trained = with_threshold(network, predictions, torch.zeros(len(predictions), dtype=torch.bool), examples.store)
    assert (trained.saved, network.threshold.item()) == (0.0, -math.inf)


@pytest.mark.parametrize("seed", range(3))
def test_the_most_probable_token_is_that_of_the_mixture(seed):
    """Few values, so that many are equal and the model's choice is among them here and there."""
    generator = torch.Generator().manual_seed(seed)
    rows, k, vocabulary = 300, 5, 12
    log_probs = torch.log_softmax(2 * torch.randn(rows, vocabulary, generator=generator), dim=1)
    distances = (1 + torch.rand(rows, k, generator=generator)).sort(dim=1).values
    values = torch.randint(0, vocabulary, (rows, k), generator=generator)
    neighbours = Neighbours(distances, values, torch.arange(rows * k).view(rows, k))
    torch.manual_seed(seed)
    combiner = COMBINERS.get("learned")(NetworkShape.fitting(neighbours, 6))
    queries = torch.randn(rows, 6, generator=generator)
    inputs = combiner_inputs(combiner.best_log_probs, queries, neighbours, log_probs)
    best = log_probs.max(dim=1)
    predictions = Predictions(inputs, best.indices, best.values, best.indices, best.values, torch.zeros(rows))
    combination = combiner.combine(inputs, SearchSettings(k=k, weight=1.0))
    wanted = mix_vocabulary(log_probs.clone(), neighbours, combination).argmax(dim=1)
    assert torch.equal(most_probable(predictions, combiner), wanted)
    assert 0.05 < (wanted != best.indices).float().mean() < 0.95


def test_training_again_stores_another_network_and_drops_the_first(tmp_path, save_model, number_corpus):
    store = Datastore.build(tmp_path / "store", save_model(), number_corpus, index_recipe="Flat", combiner="fixed")
    translator, files = Translator(store, device="cpu"), []
    for seed in (1, 2):
        [training] = translator.train(sentences=24, k=4, seed=seed)
        info = Datastore(store.path).manifest.combiners["full/learned"]
        files.append(info.skip_file)
        assert {path.name for path in store.combiners_path.iterdir()} == {info.file, info.skip_file}
        assert info.skip_saves == round(training.skip.saved, 4)
    assert files[0] != files[1]

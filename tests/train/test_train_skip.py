"""What skips searches is trained: the line that is drawn, and a task whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knn_seq import Datastore, Translator
from knn_seq.combine import COMBINERS, CombinerInputs, mix_vocabulary
from knn_seq.combine.trained import NetworkShape
from knn_seq.decoding.step import combiner_inputs
from knn_seq.index import Neighbours
from knn_seq.likelihood import Predictions
from knn_seq.settings import SearchSettings
from knn_seq.train.examples import Examples, Part
from knn_seq.train.fit import fit
from knn_seq.train.skip import most_probable, threshold, train_skip

PART = 20  # at most this part of the gain may be lost
# Equal odds are common: a network can hold many rows alike.
ROWS = st.lists(st.tuples(st.integers(-4, 30), st.sampled_from([-1, 0, 0, 0, 1, 1])), min_size=1, max_size=200)


@given(ROWS)
def test_as_many_rows_are_skipped_as_a_part_of_the_gain_allows(rows):
    odds = torch.tensor([float(each) for each, _ in rows])
    gains = [gain for _, gain in rows]
    line, saved = threshold(odds, torch.tensor(gains, dtype=torch.float32))

    def lost(above):
        return sum(gain for each, gain in rows if each <= above)

    total = sum(gains)
    assert saved == sum(each <= line.item() for each, _ in rows) / len(rows)
    if total <= 0:
        assert line == -math.inf
        return
    assert PART * lost(line.item()) <= total
    assert all(PART * lost(each) > total for each, _ in rows if each > line.item())


def test_rows_that_lose_nothing_are_skipped_up_to_the_first_that_does():
    odds = torch.tensor([3.0, -1.0, 0.5, 2.0, 1.0])
    line, saved = threshold(odds, torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0]))
    assert (line.item(), saved) == (1.0, 0.6)


def test_a_first_row_that_loses_too_much_leaves_nothing_to_skip():
    line, saved = threshold(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0]))
    assert (line.item(), saved) == (-math.inf, 0.0)


def wrong_in_one_half(tokens, seed):
    """The model is wrong, and neighbours are right, where the first number of the query is positive."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(tokens, 6, generator=generator)
    wrong = queries[:, 0] > 0
    targets, k = torch.randint(0, 20, (tokens,), generator=generator), 4
    choices = torch.where(wrong, (targets + 1) % 20, targets)
    distances = 1 + torch.rand(tokens, k, generator=generator).sort(dim=1).values
    neighbours = Neighbours(distances, targets.unsqueeze(1).expand(-1, k), torch.arange(tokens * k).view(tokens, k))
    best = torch.full((tokens,), -0.7)
    of_targets = torch.where(wrong, -5.0, -0.7)
    inputs = CombinerInputs(queries, neighbours, of_targets.unsqueeze(1).expand(-1, k), best.unsqueeze(1).expand(-1, 8))
    return Predictions(inputs, targets, of_targets, choices, best)


def test_a_known_task_is_learned():
    examples = Examples([Part(wrong_in_one_half(4000, 0), 1.0)], [Part(wrong_in_one_half(800, 1), 1.0)], 0, None)
    first = examples.train[0].predictions
    torch.manual_seed(0)
    combiner = COMBINERS.get("learned")(NetworkShape.fitting(first.neighbours, 6))
    fit(combiner, examples, 0)
    trained = train_skip(examples, combiner, 0)
    assert 0.4 < trained.saved < 0.6
    new = wrong_in_one_half(2000, 2)
    needed = trained.network.needed(new.inputs.queries, new.choice_log_probs)
    wrong = new.inputs.queries[:, 0] > 0
    assert (needed == wrong).float().mean() > 0.9
    assert needed[wrong].float().mean() > 0.9
    again = train_skip(examples, combiner, 0)
    assert torch.equal(again.network.hidden.weight, trained.network.hidden.weight)
    other = train_skip(examples, combiner, 1)
    assert not torch.equal(other.network.hidden.weight, trained.network.hidden.weight)


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
    predictions = Predictions(inputs, best.indices, best.values, best.indices, best.values)
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

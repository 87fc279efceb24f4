"""Combiners with weights: against a slow reference, and the files that keep them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_combiners import SLOW, randomise, slow_mixture, slow_row

from knn_seq.combine import COMBINERS, mix_tokens, mix_vocabulary
from knn_seq.combine.trained import NetworkShape, distinct_values
from knn_seq.datastore import Datastore
from knn_seq.decoding.step import combiner_inputs
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError
from knn_seq.index import Neighbours
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory

NAMES = sorted(SLOW)
VOCABULARY, DIMENSION, ENTRIES = 11, 3, 40
SHAPE = NetworkShape(6, DIMENSION, offset=-20.0, scale=150.0)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A folder with keys and nothing else, which is all that a combiner reads of it."""
    path = tmp_path_factory.mktemp("keys")
    rows = np.random.default_rng(1).normal(size=(ENTRIES, DIMENSION)).astype(np.float16)
    folder = DatastoreFolder(path)
    folder.__dict__["keys"] = rows
    return folder


def made(name, keys, shape=SHAPE, seed=0):
    combiner = COMBINERS.get(name)(shape)
    randomise(combiner.network, seed)
    combiner.attach(keys)
    return combiner


@st.composite
def cases(draw):
    """Rows with up to as many neighbours as were trained for, few values, among them 0, and ties."""
    rows, k, seed = draw(st.integers(1, 4)), draw(st.integers(1, SHAPE.k)), draw(st.integers(0, 99))
    all_found = draw(st.booleans())
    neighbours = Neighbours.none(rows, k)
    for row in range(rows):
        found = k if all_found else draw(st.integers(0, k))
        distances = sorted(draw(st.lists(st.floats(-100, 2000, width=32), min_size=found, max_size=found)))
        neighbours.distances[row, :found] = torch.tensor(distances)
        values = draw(st.lists(st.integers(0, 3), min_size=found, max_size=found))
        neighbours.values[row, :found] = torch.tensor(values, dtype=torch.int64)
        ids = draw(st.lists(st.integers(0, ENTRIES - 1), min_size=found, max_size=found))
        neighbours.ids[row, :found] = torch.tensor(ids, dtype=torch.int64)
    neighbours = replace(neighbours, complete=all_found and draw(st.booleans()))  # nobody has to say so
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.log_softmax(5 * torch.randn(rows, VOCABULARY, generator=generator), dim=-1)
    return (
        torch.randn(rows, DIMENSION, generator=generator),
        neighbours,
        log_probs,
        draw(st.sampled_from([0.0, 0.3, 1])),
    )


@pytest.mark.parametrize("name", NAMES)
@given(case=cases(), training=st.booleans())
@settings(max_examples=60)
def test_the_mixture_is_what_the_formula_says(name, keys, case, training):
    """In decoding (all of the vocabulary) and in likelihoods and explanations (one token)."""
    queries, neighbours, log_probs, weight = case
    combiner = made(name, keys)
    inputs = combiner_inputs(combiner.best_log_probs, queries, neighbours, log_probs)
    with torch.set_grad_enabled(training):
        combination = combiner.combine(inputs, SearchSettings(weight=weight))
    decoded = mix_vocabulary(log_probs.clone(), neighbours, combination).exp().numpy()
    for row in range(len(queries)):
        alone = slow_row(combiner, queries, neighbours, log_probs, keys.keys, row)
        wanted = slow_mixture(name, combiner, alone, weight)
        np.testing.assert_allclose(decoded[row], wanted, atol=1e-5)
        assert wanted.sum() == pytest.approx(1.0)
    for token in range(4):
        tokens = torch.full((len(queries),), token)
        alone = mix_tokens(tokens, log_probs[:, token].double(), neighbours, combination).exp().numpy()
        np.testing.assert_allclose(alone, decoded[:, token], atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_smaller_k_is_like_neighbours_that_are_missing(name, keys):
    combiner = made(name, keys)
    few = Neighbours(torch.tensor([[3.0, 90.0]]), torch.tensor([[0, 2]]), torch.tensor([[7, 1]]))
    filled = Neighbours.none(1, SHAPE.k)
    filled.distances[:, :2], filled.values[:, :2], filled.ids[:, :2] = few.distances, few.values, few.ids
    log_probs = torch.log_softmax(torch.randn(1, VOCABULARY), dim=-1)
    weights, probabilities = zip(
        *(
            combiner.combine(
                combiner_inputs(combiner.best_log_probs, torch.ones(1, 3), each, log_probs), SearchSettings()
            )
            for each in (few, filled)
        ),
        strict=True,
    )
    torch.testing.assert_close(weights[0], weights[1])
    torch.testing.assert_close(probabilities[0], probabilities[1][:, :2])
    assert not probabilities[1][:, 2:].any()


@torch.no_grad()
def test_decoding_takes_the_weights_that_training_has_left(keys):
    combiner = made("learned", keys)
    neighbours = Neighbours(torch.tensor([[3.0, 90.0]]), torch.tensor([[0, 2]]), torch.tensor([[7, 1]]))
    counted = replace(neighbours, counts=torch.tensor([[1, 9]]))
    log_probs = torch.log_softmax(torch.randn(1, VOCABULARY), dim=-1)
    for seed in (0, 1):
        randomise(combiner.network, seed)
        for found in (neighbours, counted):
            inputs = combiner_inputs(1, torch.ones(1, 3), found, log_probs)
            decoded = combiner.combine(inputs, SearchSettings(weight=0.9))
            with torch.enable_grad():
                trained = combiner.combine(inputs, SearchSettings(weight=0.9))
            torch.testing.assert_close(decoded, trained)


def test_kster_takes_many_rows_in_parts(keys, monkeypatch):
    combiner, neighbours = made("kster", keys), Neighbours(torch.rand(9, 4), *torch.randint(0, 5, (2, 9, 4)))
    inputs = combiner_inputs(0, torch.randn(9, 3), neighbours, torch.zeros(9, VOCABULARY))
    at_once = combiner.combine(inputs, SearchSettings())
    monkeypatch.setattr("knn_seq.combine.kster.KEYS_AT_A_TIME", 8)
    torch.testing.assert_close(combiner.combine(inputs, SearchSettings()), at_once)


def test_distinct_values_count_token_0_and_nothing_that_is_missing():
    values, ids = torch.tensor([[0, 3, 0, 4], [5, 0, 0, 0]]), torch.tensor([[1, 2, 3, 4], [9, -1, -1, -1]])
    assert distinct_values(Neighbours(values.float(), values, ids)).tolist() == [[1, 2, 2, 3], [1, 1, 1, 1]]


def test_many_distinct_values_are_counted_like_few():
    values = torch.randint(0, 40, (7, 200), generator=torch.Generator().manual_seed(0))
    ids = torch.arange(200).expand(7, -1).clone()
    ids[3, 150:], values[3, 150:] = -1, 0
    expected = [
        [len({value for value, entry in zip(row[: n + 1], entries, strict=False) if entry >= 0}) for n in range(200)]
        for row, entries in zip(values.tolist(), ids.tolist(), strict=True)
    ]
    assert distinct_values(Neighbours(values.float(), values, ids)).tolist() == expected


def test_learned_begins_as_fixed():
    neighbours = Neighbours(50 + 20 * torch.rand(6, 8), *torch.randint(0, 5, (2, 6, 8)))
    inputs = combiner_inputs(1, torch.randn(6, 3), neighbours, torch.zeros(6, VOCABULARY))
    learned = COMBINERS.get("learned")(NetworkShape.fitting(neighbours, 3))
    settings = SearchSettings(temperature=7.0, weight=0.7)
    learned.begin_with(settings)
    weights, probabilities = learned.combine(inputs, SearchSettings(weight=1.0))
    expected = COMBINERS.get("fixed")().combine(inputs, settings)
    torch.testing.assert_close(weights, torch.full((6,), 0.7))
    torch.testing.assert_close(probabilities, expected.probabilities)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_is_loaded(name, keys, tmp_path):
    combiner = made(name, keys)
    combiner.save(tmp_path / "weights")
    loaded = type(combiner).load(tmp_path / "weights")
    assert loaded.shape == combiner.shape
    for parameter, wanted in zip(loaded.network.parameters(), combiner.network.parameters(), strict=True):
        assert torch.equal(parameter, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_holds_no_such_weights_is_refused(name, keys, tmp_path):
    combiner, path = made(name, keys), tmp_path / "weights"
    with pytest.raises(DamagedFile, match="missing: train them again"):
        type(combiner).load(path)
    combiner.save(path)
    for damaged in (b"", b"weights", path.read_bytes()[:-40], path.read_bytes().replace(b'\\"k\\": 6', b'\\"k\\": x')):
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(DamagedFile, match=f"(holds no weights|'{name}').*: train (them|it) again"):
            type(combiner).load(tmp_path / "damaged")
    other = "adaptive" if name == "learned" else "learned"
    made(other, keys).save(path)
    with pytest.raises(DamagedFile, match=f"it names the combiner '{other}'"):
        type(combiner).load(path)


@pytest.mark.parametrize("name", NAMES)
def test_more_neighbours_than_it_was_trained_for_are_refused(name, keys):
    combiner, many = made(name, keys), Neighbours.none(1, SHAPE.k + 1)
    inputs = combiner_inputs(combiner.best_log_probs, torch.zeros(1, 3), many, torch.zeros(1, VOCABULARY))
    with pytest.raises(InvalidSetting, match=f"'{name}' was trained for at most 6 neighbours, not for a k of 7"):
        combiner.combine(inputs, SearchSettings(combiner=name))


def test_kster_needs_keys(keys, tmp_path):
    combiner = COMBINERS.get("kster")(SHAPE)
    with pytest.raises(KnnSeqError, match="translation memory does not store"):
        combiner.attach(TranslationMemory([("a", "b")]))
    with pytest.raises(KnnSeqError, match="are missing"):
        combiner.attach(DatastoreFolder(tmp_path))


def test_robust_training_has_noise_that_decays(keys):
    combiner = made("robust", keys)
    generator = torch.Generator().manual_seed(0)
    neighbours = Neighbours(
        torch.tensor([[10.0, 30.0, math.inf]]), torch.tensor([[1, 2, 0]]), torch.tensor([[5, 6, -1]])
    )
    log_probs = torch.log_softmax(torch.arange(float(VOCABULARY)), dim=0).unsqueeze(0)
    inputs = combiner_inputs(8, torch.zeros(1, 3), neighbours, log_probs)

    def noisy(target, progress):
        return combiner.perturbed(inputs, torch.tensor([target]), log_probs[:, target], progress, generator)

    lacking = noisy(0, 0.0)  # token 0 fills empty places, and no neighbour has it
    assert lacking.neighbours.values.tolist() == [[0, 1, 2]]
    assert lacking.neighbours.found.all()
    torch.testing.assert_close(lacking.value_log_probs, log_probs[:, [0, 1, 2]])
    there = noisy(2, 0.0)
    assert there.neighbours.ids.tolist() == [[5, 6, -1]]
    assert torch.equal(there.neighbours.distances.isinf(), neighbours.distances.isinf())
    assert (there.neighbours.distances != neighbours.distances)[:, :2].all()
    unchanged = sum(torch.equal(noisy(0, 1.0).neighbours.values, neighbours.values) for _ in range(50))
    assert unchanged > 40  # of the last updates hardly any has noise
    empty = replace(inputs, neighbours=Neighbours.none(1, 3))
    got = combiner.perturbed(empty, torch.tensor([0]), log_probs[:, 0], 0.0, generator)
    assert got.neighbours.empty.all()


def test_retrieval_dropout_drops_the_nearest(keys):
    neighbours = Neighbours(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4, 5, 6]]), torch.tensor([[7, 8, 9]]))
    log_probs = torch.log_softmax(torch.randn(1, VOCABULARY), dim=-1)
    inputs, combiner = combiner_inputs(0, torch.zeros(1, 3), neighbours, log_probs), made("kster", keys)
    generator = torch.Generator().manual_seed(0)
    seen = {}
    for _ in range(20):
        got = combiner.perturbed(inputs, torch.tensor([4]), log_probs[:, 4], 0.0, generator)
        seen[tuple(got.neighbours.values[0].tolist())] = got
    assert set(seen) == {(4, 5, 6), (5, 6)}
    torch.testing.assert_close(seen[5, 6].value_log_probs, log_probs[:, [5, 6]])
    only = inputs.nearest(1)
    for _ in range(20):
        assert combiner.perturbed(only, torch.tensor([4]), log_probs[:, 4], 0.0, generator) is only


def test_a_datastore_names_what_is_wrong_with_its_combiner(save_model, number_corpus, tmp_path, knn_seq):
    store = Datastore.build(tmp_path / "store", save_model(), number_corpus, index_recipe="Flat").path
    [weights] = (path for path in (store / "combiners").iterdir() if "skip" not in path.name)
    text = tmp_path / "text"
    text.write_text("1 2 3\n")
    translate = ("translate", store, "--input", text, "--combiner")
    code, _, error = knn_seq(*translate, "robust")
    assert code == 2
    assert "has no trained combiner 'robust' for distances of the metric l2: run `knn-seq train" in error
    Datastore(store).add_index("Flat", "cosines", distance_metric="cosine")
    code, _, error = knn_seq(*translate, "learned", "--index", "cosines")
    assert code == 2
    assert "of the metric cosine: run `knn-seq train" in error
    assert "--combiner learned --index cosines`" in error
    code, _, error = knn_seq(*translate, "learned", "-k", 33)
    assert code == 2
    assert "at most 32 neighbours, not for a k of 33" in error
    COMBINERS.get("learned")(NetworkShape(8, DIMENSION)).save(weights)
    code, _, error = knn_seq(*translate, "learned")
    assert code == 2
    assert "is for 8 neighbours, where the datastore has a combiner for 32: train it again" in error
    weights.unlink()
    code, _, error = knn_seq(*translate, "learned")
    assert code == 2
    assert "are missing: train them again" in error

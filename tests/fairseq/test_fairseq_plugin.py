"""fairseq-generate with neighbours: against plain fairseq, and against kNN-MT computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from fairseq_commands import generate, with_neighbours
from slow_search import SlowModel, mixture, slow_beam_search

from knn_seq.datastore import Datastore
from knn_seq.models import Source, load_model
from knn_seq.sentences.open import open_sentences

K, TEMPERATURE, WEIGHT = 8, 20.0, 0.5
LONGEST = 24
SETTINGS = {"k": K, "temperature": TEMPERATURE, "weight": WEIGHT}
LIMIT = ("--max-len-b", LONGEST)


def plain(hypotheses):
    return {number: [(h.words, h.score) for h in nbest] for number, nbest in hypotheses.items()}


def words(hypotheses):
    return {number: nbest[0].words for number, nbest in hypotheses.items()}


def assert_same(found, expected, tolerance=1e-4):
    """The same n best outputs with the same scores."""
    assert found.keys() == expected.keys()
    for number, nbest in expected.items():
        assert [h.words for h in found[number]] == [text for text, _ in nbest], number
        np.testing.assert_allclose([h.score for h in found[number]], [score for _, score in nbest], atol=tolerance)


@pytest.fixture(scope="module")
def alone(toy):
    """What fairseq makes of the test set without us."""
    return generate(toy.data, toy.models[0], *LIMIT)


@pytest.fixture
def by_hand(toy, dictionaries):
    """The n best outputs of each sentence of the test set, for what gives the distribution of a source."""

    def search(distribution_of):
        source, target = dictionaries
        expected = {}
        for number, sentence in enumerate(toy.test):
            tokens = source.encode_line(" ".join(sentence), add_if_not_exist=False).tolist()
            outputs = slow_beam_search(distribution_of(tokens), 5, LONGEST)
            expected[number] = [(target.string(output), score) for output, score in outputs]
        return expected

    return search


def entries(store):
    store = Datastore(store)
    return np.asarray(store.keys), np.asarray(store.values.items)


def test_a_weight_of_0_is_fairseq_alone(toy, alone, build_store):
    found = generate(toy.data, toy.models[0], *with_neighbours(build_store(), **SETTINGS | {"weight": 0}), *LIMIT)
    assert plain(found) == plain(alone)


def test_a_weight_of_0_needs_no_datastore(toy, alone):
    found = generate(toy.data, toy.models[0], *with_neighbours("nowhere", weight=0), *LIMIT)
    assert plain(found) == plain(alone)


def test_the_neighbours_teach_the_words_of_their_domain(toy, alone, build_store):
    found = generate(toy.data, toy.models[0], *with_neighbours(build_store(), **SETTINGS), *LIMIT)

    def special(hypotheses):
        return sum(text.count("s") for text in words(hypotheses).values())

    assert special(found) > special(alone) + 5


def test_the_mixture_is_the_one_computed_by_hand(toy, build_store, networks, by_hand):
    keys, values = entries(build_store())
    model = SlowModel(networks[0])
    expected = by_hand(lambda source: mixture(model, source, keys, values, K, TEMPERATURE, WEIGHT))
    found = generate(toy.data, toy.models[0], *with_neighbours(build_store(), **SETTINGS), *LIMIT)
    assert_same(found, expected)


def test_each_token_has_the_mixtures_probability(toy, dictionaries, build_store, networks):
    keys, values = entries(build_store())
    model = SlowModel(networks[0])
    source_dictionary, target_dictionary = dictionaries
    found = generate(toy.data, toy.models[0], *with_neighbours(build_store(), **SETTINGS), *LIMIT)
    for number, nbest in found.items():
        source = source_dictionary.encode_line(" ".join(toy.test[number]), add_if_not_exist=False).tolist()
        probabilities = mixture(model, source, keys, values, K, TEMPERATURE, WEIGHT)
        output = target_dictionary.encode_line(nbest[0].words, add_if_not_exist=False).tolist()
        expected = [np.log(probabilities(output[:t])[token]) for t, token in enumerate(output)]
        np.testing.assert_allclose(nbest[0].positions, expected, atol=1e-4)


def test_options_that_are_not_given_are_the_datastores_own(toy, build_store):
    store = build_store()
    own = Datastore(store).search_settings
    given = with_neighbours(store, k=own.k, temperature=own.temperature, weight=own.weight, combiner=own.combiner)
    assert own.weight > 0
    assert plain(generate(toy.data, toy.models[0], *with_neighbours(store))) == plain(
        generate(toy.data, toy.models[0], *given)
    )


@pytest.mark.parametrize("kind", ["encoder", "bm25"])
def test_every_row_of_a_batch_searches_for_its_own_sentence(toy, build_store, networks, by_hand, dictionaries, kind):
    """Sentences of 1 to 14 words in one batch: they end, and leave it, one after the other."""
    store = build_store(sentence_search=kind, codes="Flat", sentence_index_recipe="Flat")
    datastore = Datastore(store)
    keys, values = entries(store)
    model, size = SlowModel(networks[0]), 6
    owner = np.repeat(np.arange(len(datastore.values)), datastore.values.lengths())
    search = open_sentences(datastore, load_model(datastore.model_settings))

    def nearest(source):
        return search.nearest([Source(dictionaries[0].string(source), source)], size)[0]

    def within_subset(source):
        chosen = np.isin(owner, nearest(source))
        return mixture(model, source, keys[chosen], values[chosen], K, TEMPERATURE, WEIGHT)

    expected = by_hand(within_subset)
    subset = with_neighbours(store, retriever="subset", subset_size=size, **SETTINGS)
    assert len({len(sentence) for sentence in toy.test}) > 5
    assert_same(generate(toy.data, toy.models[0], *subset, *LIMIT, "--batch-size", 12), expected)
    assert_same(generate(toy.data, toy.models[0], *subset, *LIMIT, "--batch-size", 1), expected)
    full = generate(toy.data, toy.models[0], *with_neighbours(store, **SETTINGS), *LIMIT)
    assert words(full) != {number: nbest[0][0] for number, nbest in expected.items()}


def test_an_ensemble_asks_one_datastore_with_its_first_model(toy, build_store, networks, by_hand):
    keys, values = entries(build_store())
    lead, follower = (SlowModel(network) for network in networks)

    def distribution(source):
        mixed = mixture(lead, source, keys, values, K, TEMPERATURE, WEIGHT)

        def probabilities(prefix):
            others = follower(source, prefix)[0] - lead(source, prefix)[0]
            return mixed(prefix) + (1 - WEIGHT) * others / 2

        return probabilities

    both = ":".join(map(str, toy.models))
    found = generate(toy.data, both, *with_neighbours(build_store(), **SETTINGS), *LIMIT)
    assert_same(found, by_hand(distribution))


@pytest.mark.parametrize("separator", [",", ":"])
def test_each_model_of_an_ensemble_may_ask_its_own_datastore(toy, build_store, networks, by_hand, separator):
    stores = [build_store(0), build_store(1)]
    models = [SlowModel(network) for network in networks]

    def distribution(source):
        mixed = [
            mixture(model, source, *entries(store), K, TEMPERATURE, WEIGHT)
            for model, store in zip(models, stores, strict=True)
        ]
        return lambda prefix: sum(probabilities(prefix) for probabilities in mixed) / 2

    both = ":".join(map(str, toy.models))
    found = generate(toy.data, both, *with_neighbours(separator.join(map(str, stores)), **SETTINGS), *LIMIT)
    assert_same(found, by_hand(distribution))


def test_alignments_can_be_printed(toy, build_store):
    chosen = with_neighbours(build_store(), **SETTINGS)
    found = generate(toy.data, toy.models[0], *chosen, *LIMIT, "--print-alignment")
    assert_same(found, plain(generate(toy.data, toy.models[0], *chosen, *LIMIT)))

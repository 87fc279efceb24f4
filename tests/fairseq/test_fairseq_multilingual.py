"""The task of M2M100 and its like: language tokens before the source and before the target."""

from __future__ import annotations

import numpy as np
import pytest
from fairseq_commands import generate, load_network, train, with_neighbours
from slow_search import SlowModel, mixture

from knn_seq.datastore import Datastore

LANGUAGES = ("--langs", "xx,yy", "--lang-pairs", "xx-yy", "--encoder-langtok", "src", "--decoder-langtok")
DIRECTION = ("--source-lang", "xx", "--target-lang", "yy")
SETTINGS = {"k": 8, "temperature": 20.0, "weight": 0.5}


@pytest.fixture(scope="module")
def multilingual(toy):
    """A checkpoint of translation_multi_simple_epoch."""
    task = ("--task", "translation_multi_simple_epoch", "--sampling-method", "temperature")
    return train(toy.data, toy.folder / "multilingual", 4, 8, *task, *LANGUAGES)


@pytest.fixture(scope="module")
def sides(dictionaries):
    """The dictionaries as the task extends them."""
    from fairseq.data import Dictionary

    made = []
    for dictionary in dictionaries:
        side = Dictionary()
        side.update(dictionary)
        made.append(side)
        for language in ("xx", "yy"):
            side.add_symbol(f"__{language}__")
    return made


@pytest.fixture(scope="module")
def store(multilingual, build_store):
    return build_store(checkpoint=multilingual, source_lang="xx", target_lang="yy")


def test_a_weight_of_0_is_fairseq_alone(toy, multilingual, store):
    task = "translation_multi_simple_epoch"
    alone = generate(toy.data, multilingual, "--task", task, *LANGUAGES, *DIRECTION)
    neighbours = with_neighbours(store, f"{task}_knn", weight=0)
    assert generate(toy.data, multilingual, *neighbours, *LANGUAGES, *DIRECTION) == alone


def test_each_token_has_the_mixtures_probability(toy, multilingual, store, sides):
    options = with_neighbours(store, "translation_multi_simple_epoch_knn", **SETTINGS)
    found = generate(toy.data, multilingual, *options, *LANGUAGES, *DIRECTION)
    model = SlowModel(load_network(multilingual, data=str(toy.data)))
    datastore = Datastore(store)
    keys, values = np.asarray(datastore.keys), np.asarray(datastore.values.items)
    before_source, before_target = sides[0].index("__xx__"), sides[1].index("__yy__")
    assert len(found) == len(toy.test)
    for number, nbest in found.items():
        words = sides[0].encode_line(" ".join(toy.test[number]), add_if_not_exist=False).tolist()
        probabilities = mixture(model, [before_source, *words], keys, values, 8, 20.0, 0.5)
        output = sides[1].encode_line(nbest[0].words, add_if_not_exist=False).tolist()
        expected = [np.log(probabilities([before_target, *output[:t]])[token]) for t, token in enumerate(output)]
        np.testing.assert_allclose(nbest[0].positions[1:], expected, atol=1e-4)  # the first is the language's

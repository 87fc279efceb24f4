"""The two roads of a fairseq user: the plug-in, and the checkpoint without fairseq."""

from __future__ import annotations

import pytest
from fairseq_commands import generate, with_neighbours

from knn_seq import Translator
from knn_seq.cli.main import main
from knn_seq.explain import explain

SETTINGS = {"k": 8, "temperature": 20.0, "weight": 0.5}


@pytest.fixture(scope="module")
def store(toy, tmp_path_factory):
    """A datastore that `knn-seq build` made, without fairseq, from the checkpoint and binarized text."""
    path = tmp_path_factory.mktemp("own-road") / "store"
    model = ["--model", f"fairseq:{toy.models[0]}", "--corpus", toy.domain]
    options = ["--index-recipe", "Flat", "--sentence-search", "encoder", "--codes", "Flat", "--quiet"]
    assert main(["build", *map(str, (path, *model, *options))]) == 0
    return path


@pytest.fixture(scope="module")
def translator(store):
    return Translator(store, beam_size=5, length_penalty=1.0, max_length=24)


@pytest.mark.parametrize("weight", [0.0, 0.5])
@pytest.mark.parametrize("retriever", ["full", "subset"])
def test_both_give_the_same_translations_and_scores(toy, store, translator, weight, retriever):
    settings = SETTINGS | {"weight": weight, "retriever": retriever, "subset_size": 6}
    options = with_neighbours(store, **settings)
    found = generate(toy.data, toy.models[0], *options, "--max-len-b", 24, "--batch-size", 12)
    own = translator.translate([" ".join(sentence) for sentence in toy.test], **settings)
    for number, translation in enumerate(own):
        assert str(translation) == found[number][0].words
        [explanation] = explain(translator, [translation], **settings)
        mean = explanation.log_probability / len(translation.tokens)
        assert mean == pytest.approx(found[number][0].score, abs=1e-4)

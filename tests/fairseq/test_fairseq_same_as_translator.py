"""The two ways to use a checkpoint, the plug-in and Translator: the same settings, probabilities and translations."""

from __future__ import annotations

import math
import shutil
from unittest import mock

import numpy as np
import pytest
import torch
from fairseq_commands import generate, with_neighbours
from transformers import AutoModelForSeq2SeqLM

from knn_seq import Datastore, Translator
from knn_seq.decoding.stored_settings import store_settings, stored_settings
from knn_seq.explain import explain
from knn_seq.fairseq import register_fairseq
from knn_seq.fairseq.backend import convert
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings, override

RETRIEVERS, COMBINERS = ("full", "subset"), ("fixed", "distance")


@pytest.fixture(scope="module")
def stores(build_store, tmp_path_factory):
    """A datastore with two indexes as it was built, and one with settings tuned for each retriever and combiner."""
    built = build_store(sentence_search="encoder", codes="Flat")
    plain, tuned = (tmp_path_factory.mktemp(name) / "store" for name in ("plain", "tuned"))
    shutil.copytree(built, plain)
    Datastore(plain).add_index("IVF4,Flat", "lists")
    shutil.copytree(plain, tuned)
    store = Datastore(tuned)
    for number, retriever in enumerate(RETRIEVERS):
        for other, combiner in enumerate(COMBINERS):
            for index in (None, "lists"):
                own = stored_settings(store, retriever, combiner, index)
                values = {"k": 5 + 2 * number + 4 * other, "temperature": 15.0 + number, "weight": 0.6 - 0.1 * other}
                if retriever == "subset":
                    values |= {"subset_size": 6}
                elif index is not None:
                    values |= {"index_options": {"nprobe": 3}}
                store_settings(store, override(own, values), as_default=False)
    return {"untuned": plain, "tuned": tuned}


@pytest.mark.parametrize("index", [None, "lists"])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("retriever", RETRIEVERS)
@pytest.mark.parametrize("kind", ["untuned", "tuned"])
def test_both_give_the_same(toy, stores, kind, retriever, combiner, index):
    from knn_seq.fairseq.generate import tasks

    options = {"retriever": retriever, "combiner": combiner} | ({"index": index} if index else {})
    with mock.patch.object(tasks, "KnnEnsemble", wraps=tasks.KnnEnsemble) as ensemble:
        chosen = with_neighbours(stores[kind], **options)
        found = generate(toy.data, toy.models[0], *chosen, "--max-len-b", 24, "--batch-size", 12)
    _, _, [settings], *_ = ensemble.call_args.args
    translator = Translator(stores[kind], beam_size=5, max_length=24, device="cpu", **options)
    assert settings == translator.settings({})[0]
    assert (settings.k in (5, 7, 9, 11)) == (kind == "tuned")

    translations = translator.translate([" ".join(sentence) for sentence in toy.test])
    for number, translation in enumerate(translations):
        hypothesis = found[number][0]
        assert translation == hypothesis.words
        assert translation.score / len(translation.tokens) == pytest.approx(hypothesis.score, abs=1e-4)
        [explanation] = explain(translator, [translation])
        log_probs = [math.log(token.probability) for token in explanation.tokens]
        np.testing.assert_allclose(hypothesis.positions, log_probs, atol=1e-4)


def test_a_converted_model_searches_as_fairseq_does(toy, tmp_path):
    convert(str(toy.models[0]), tmp_path / "out", ModelSettings("", data=str(toy.data)))
    register_fairseq()
    network = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = load_model(ModelSettings(str(tmp_path / "out"), device="cpu")).tokenizer
    found = generate(toy.data, toy.models[0])
    for number, sentence in enumerate(toy.test):
        output = network.generate(torch.tensor(tokenizer.encode_sources([" ".join(sentence)])))
        assert tokenizer.decode(output[0, 1:].tolist()) == found[number][0].words


def test_without_weight_both_are_the_model_alone(toy, stores):
    found = generate(toy.data, toy.models[0], *with_neighbours(stores["tuned"], weight=0), "--max-len-b", 24)
    translator = Translator(stores["tuned"], beam_size=5, max_length=24, weight=0, device="cpu")
    translations = translator.translate([" ".join(sentence) for sentence in toy.test])
    assert list(translations) == [found[number][0].words for number in range(len(toy.test))]

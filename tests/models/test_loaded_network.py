"""A loaded network of Transformers with its tokenizer in the place of a name."""

from __future__ import annotations

import pytest
import torch
import transformers
from tiny_models import make_network, number_tokenizer

from knn_seq import Datastore, Translator
from knn_seq.errors import InvalidSetting, ModelMismatch
from knn_seq.models import as_model
from knn_seq.settings import ModelSettings

SOURCES = ["9 10 11", "12", "7 7 8 30"]


@pytest.mark.parametrize("kind", ["marian", "t5", "llama"])
def test_build_and_translate(kind, number_corpus, save_model, tmp_path):
    auto = transformers.AutoModelForCausalLM if kind == "llama" else transformers.AutoModelForSeq2SeqLM
    network, tokenizer = auto.from_pretrained(save_model(kind)), number_tokenizer()
    options = {"index_recipe": "Flat", "calibration_sentences": 8}
    store = Datastore.build(tmp_path / "store", network, number_corpus, tokenizer=tokenizer, **options)
    assert store.manifest.model.spec == save_model(kind)
    found = Translator(store, network, tokenizer=tokenizer, max_length=8).translate(SOURCES)
    by_name = Datastore.build(tmp_path / "by-name", save_model(kind), number_corpus, **options)
    expected = Translator(by_name, max_length=8).translate(SOURCES)
    assert found == expected
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-5)
    assert found != Translator(store, network, tokenizer=tokenizer, max_length=8, weight=0).translate(SOURCES)


def test_another_network_is_refused(number_store):
    with pytest.raises(ModelMismatch, match="weights differ"):
        Translator(number_store, make_network("marian", seed=1), tokenizer=number_tokenizer())


def test_it_is_taken_as_it_is():
    network = make_network("marian").to(torch.bfloat16)
    model = as_model(network, ModelSettings(""), number_tokenizer())
    assert (model.settings.name, model.settings.dtype) == ("MarianMTModel", "bfloat16")
    assert model.network is network
    assert network.dtype == torch.bfloat16
    assert as_model(model, ModelSettings("")) is model


def test_what_is_no_model():
    with pytest.raises(InvalidSetting, match="needs its tokenizer"):
        as_model(make_network("marian"), ModelSettings(""))
    with pytest.raises(InvalidSetting, match="dict is no model"):
        as_model({}, ModelSettings(""), number_tokenizer())

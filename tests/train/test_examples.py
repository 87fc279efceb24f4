"""What combiners learn from, in small datastores, and the general sentences."""

from __future__ import annotations

import gzip

import pytest
from slow_combiners import SLOW
from tiny_models import make_model

from knn_seq.datastore import Datastore
from knn_seq.decoding import KnnDecoder
from knn_seq.errors import DamagedFile, KnnSeqError, NotFound
from knn_seq.explain import explain
from knn_seq.settings import SearchSettings
from knn_seq.train import examples_for, train
from knn_seq.train.general import general_sentences
from knn_seq.translator import Translator


@pytest.fixture(scope="module")
def model():
    return make_model("marian")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, model):
    """A translator of a small datastore with all combiners."""
    pairs = [(f"{n} {n + 1} {n + 2}", f"{n + 2} {n + 1} {n}") for n in range(5, 25)]
    path = tmp_path_factory.mktemp("trained") / "store"
    Datastore.build(path, model, pairs, index_recipe="Flat", combiner="fixed")
    translator = Translator(path, model, combiner="fixed")
    translator.train(sorted(SLOW), general=["1 2", "7 9 8"], k=6, as_default=False)
    return Translator(path, model)


@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_stored_combiner_explains_what_it_decoded(name, trained):
    sources = ["5 6 7", "9 2 14", "1"]
    options = {"combiner": name, "beam_size": 1}
    translations = trained.translate(sources, **options)
    for explanation in explain(trained, translations, **options):
        assert explanation.log_probability == pytest.approx(explanation.translation.score, abs=1e-3)
        for token in explanation.tokens:
            # Greedy: what was written is at least as likely as what the model alone would have written.
            assert token.probability >= token.model_choice_probability - 1e-6
            given = sum(one.probability for one in token.neighbours if one.token == token.token)
            own = token.weight * given + (1 - token.weight) * token.model_probability
            assert token.probability == pytest.approx(own, abs=1e-5)


def test_two_sentences_are_enough_and_one_is_too_few(tmp_path, model):
    two = Datastore.build(tmp_path / "two", model, [("1 2 3", "3 2 1"), ("4 5", "5 4")], index_recipe="Flat")
    assert two.manifest.combiners
    one = Datastore.build(tmp_path / "one", model, [("1 2 3", "3 2 1")], index_recipe="Flat")
    assert not one.manifest.combiners
    assert one.search_settings.combiner == "fixed"
    assert one.search_settings.weight == SearchSettings.weight  # nothing was measured
    examples = examples_for(KnnDecoder(one, model), SearchSettings(), general=["1 2"])
    assert not examples.usable
    with pytest.raises(KnnSeqError, match="nothing to train"):
        train(examples, SearchSettings())


def test_a_translation_memory_trains_what_needs_no_keys(model):
    pairs = [(f"{n} {n + 1} {n + 2}", f"{n + 2} {n + 1} {n}") for n in range(5, 25)]
    for name in ("adaptive", "robust"):
        translator = Translator(model=model, translation_memory=pairs, combiner=name)
        assert translator.decoder.settings().combiner == name
        assert translator.translate("5 6 7", beam_size=1).tokens
    with pytest.raises(KnnSeqError, match="'kster' reads the neighbours' keys"):
        Translator(model=model, translation_memory=pairs, combiner="kster")


def test_general_sentences_are_the_lines_of_a_file(tmp_path, model):
    path = tmp_path / "general.txt"
    path.write_bytes(b"\xef\xbb\xbfUma frase.\r\n\n  Outra\xe2\x80\xa8frase. \n")
    assert general_sentences(model, path) == ["Uma frase.", "Outra\u2028frase."]
    (tmp_path / "general.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert general_sentences(model, tmp_path / "general.gz") == general_sentences(model, path)
    assert general_sentences(model) == []


def test_general_sentences_that_cannot_be_read_are_refused(tmp_path, model):
    with pytest.raises(NotFound, match="There is no file"):
        general_sentences(model, tmp_path / "none")
    with pytest.raises(KnnSeqError, match="is a folder"):
        general_sentences(model, tmp_path)
    path = tmp_path / "general.txt"
    path.write_bytes(b"\n \n")
    with pytest.raises(DamagedFile, match="no sentence in"):
        general_sentences(model, path)
    path.write_bytes(b"ol\xe1\n")
    with pytest.raises(DamagedFile, match="no UTF-8 text"):
        general_sentences(model, path)


def test_general_sentences_of_the_package_are_in_the_models_language(model, monkeypatch):
    monkeypatch.setattr(type(model), "source_language", "pt_BR", raising=False)
    assert len(general_sentences(model)) > 100

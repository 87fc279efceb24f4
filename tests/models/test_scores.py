"""The score of a translation against the sum of log p of its tokens, read again under teacher forcing."""

from __future__ import annotations

import pytest
import torch
from tiny_models import END, NETWORKS, VOCABULARY, make_model, number_store_of
from transformers import GenerationConfig

from knn_seq.combine import COMBINERS, mix_tokens
from knn_seq.datastore import Datastore
from knn_seq.decoding.step import combiner_inputs
from knn_seq.models import Source, TokenPair, load_model
from knn_seq.models.ensemble import Ensemble
from knn_seq.settings import DecodingSettings, ModelSettings
from knn_seq.translator import Translator

PADDING = 1
SOURCES = ["9 10 11 12", "13 14", "20", "30 31 32 33 34"]
SEARCH = {"combiner": "fixed", "k": 6, "temperature": 20.0, "weight": 0.4}
DECODING = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4},
    "nbest": {"beam_size": 4, "nbest": 4, "length_penalty": -2.0},  # outputs of few tokens are among the best
    "sampling": {"sample": True, "seed": 3, "nbest": 3, "top_k": 8, "sampling_temperature": 1.4},
}


def reference_score(translator, translation, **options) -> float:
    """The sum of log p of a translation's tokens, token by token."""
    settings, _ = translator.settings(options)
    [source], _ = translator.read([translation.source])
    target = torch.tensor(translation.tokens)
    keys, log_probs = translator.model.score([TokenPair(source.tokens, translation.tokens)])
    total = log_probs.gather(1, target.unsqueeze(1)).squeeze(1)
    if settings.weight:
        retriever, combiner = translator.decoder.retriever(settings), COMBINERS.get(settings.combiner)()
        prepared = retriever.prepare([Source(translation.source, source.tokens)], settings)
        neighbours = retriever.retrieve(keys, torch.zeros(len(keys), dtype=torch.int64), settings, prepared)
        combination = combiner.combine(combiner_inputs(combiner.best_log_probs, keys, neighbours, log_probs), settings)
        total = mix_tokens(target, total, neighbours, combination)
    return float(total.double().sum())


def check_scores(translator, sources, outputs, **options):
    """All translations and alternatives have the score of the reference; returns their lengths."""
    translations = [each for best in translator.translate(sources, **options) for each in (best, *best.alternatives)]
    assert len(translations) == outputs * len(sources)
    # Teacher forcing takes padding, which random weights may put out, for no token at all in an FSMT.
    compared = [translation for translation in translations if PADDING not in translation.tokens[:-1]]
    assert len(compared) > len(translations) / 2
    for translation in compared:
        search = {name: options[name] for name in options if name in ("weight", "retriever", "combiner")}
        assert translation.score == pytest.approx(reference_score(translator, translation, **search), abs=1e-4)
    return {len(translation.tokens) for translation in compared}


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    """A translator with a datastore of random pairs for each kind of model."""
    made = {}

    def make(kind):
        if kind not in made:
            model = make_model(kind)
            store = number_store_of(model, tmp_path_factory.mktemp(kind))
            made[kind] = Translator(store, model, max_length=12, batch_size=3, **SEARCH)
        return made[kind]

    return make


@pytest.mark.parametrize("mode", DECODING)
@pytest.mark.parametrize("kind", NETWORKS)
def test_scores(kind, mode, translators):
    options = DECODING[mode]
    for weight in (0.0, SEARCH["weight"]):
        check_scores(translators(kind), SOURCES, options.get("nbest", 1), weight=weight, **options)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("kind", ["marian", "llama"])
def test_outputs_that_end_at_different_steps(kind, beams, translators):
    """With many tokens that end an output, each is the last of some."""
    config = GenerationConfig(
        num_beams=beams,
        num_return_sequences=4,
        do_sample=beams == 1,
        max_new_tokens=9,
        eos_token_id=[END, *range(3, VOCABULARY, 4)],
    )
    for weight in (0.0, SEARCH["weight"]):
        torch.manual_seed(0)
        lengths = check_scores(translators(kind), SOURCES, 4, weight=weight, decoding=config)
        assert len(lengths) > 2


@pytest.mark.parametrize("retriever", ["full", "subset"])
@pytest.mark.parametrize("combiner", ["fixed", "distance"])
def test_scores_with_other_parts(retriever, combiner, translators):
    translator = translators("marian")
    if retriever == "subset":
        translator.store.prepare_subset("encoder", codes="Flat", model=translator.model)
    check_scores(translator, SOURCES, 2, beam_size=3, nbest=2, retriever=retriever, combiner=combiner)


@pytest.mark.parametrize("mode", DECODING)
def test_scores_of_an_ensemble(mode, translators, tmp_path):
    lead = make_model("marian")
    store = number_store_of(lead, tmp_path)
    translator = Translator(store, lead, ensemble=[make_model("marian", seed=1)], max_length=12, **SEARCH)
    assert isinstance(translator.model, Ensemble)
    for weight in (0.0, SEARCH["weight"]):
        check_scores(translator, SOURCES, DECODING[mode].get("nbest", 1), weight=weight, **DECODING[mode])


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    model = load_model(ModelSettings("firefox:pt-en", device="cpu", dtype="float32"))
    folder = tmp_path_factory.mktemp("firefox")
    (folder / "train.tsv").write_text(
        "No princípio criou Deus os céus e a terra.\tIn the beginning God created the heaven and the earth.\n"
        "Disse Deus: haja luz. E houve luz.\tAnd God said, Let there be light: and there was light.\n"
    )
    options = {"index_recipe": "Flat", "key_dtype": "float32", "calibration_sentences": 0}
    store = Datastore.build(folder / "store", model, folder / "train.tsv", **options)
    return Translator(store, model, max_length=20, **SEARCH)


@pytest.mark.parametrize("mode", DECODING)
def test_scores_of_a_firefox_model(mode, firefox):
    sources = ["Deus viu a luz.", "A terra era boa, e houve luz no céu.", "Luz!"]
    options = DECODING[mode]
    for weight in (0.0, SEARCH["weight"]):
        check_scores(firefox, sources, options.get("nbest", 1), weight=weight, **options)


def test_a_translation_that_is_cut_has_no_end_in_its_score(translators):
    translator = translators("bart")
    [cut] = translator.translate(SOURCES[:1], beam_size=4, max_length=3)
    assert END not in cut.tokens
    assert cut.score == pytest.approx(reference_score(translator, cut), abs=1e-4)


def test_sampling_does_not_change_what_is_scored(translators):
    """The score is of the distribution before it is sharpened and cut."""
    translator = translators("marian")
    decoding = DecodingSettings(sample=True, seed=1, top_k=1, sampling_temperature=0.2, max_length=9)
    sampled = translator.translate(SOURCES, decoding=decoding)
    best = translator.translate(SOURCES, beam_size=1, max_length=9)
    assert sampled == best
    assert [each.score for each in sampled] == pytest.approx([each.score for each in best], abs=1e-4)

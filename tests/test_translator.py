from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import END, make_model

from knn_seq import Datastore, KnnSeqError, Translation, Translator
from knn_seq.decoding.step import distinct_prefixes
from knn_seq.errors import InvalidSetting, ModelMismatch, NotFound
from knn_seq.explain import explain
from knn_seq.models import TokenPair, load_model
from knn_seq.settings import DecodingSettings, ModelSettings

SOURCES = ["5 6 7", "8", "", "9 10 11 12 13", "5 6 7"]


@pytest.fixture(scope="module")
def translator(number_store):
    return Translator(number_store, device="cpu", max_length=12)


def test_weight_zero_is_exactly_the_model(translator, save_model):
    model = load_model(ModelSettings(save_model()))
    sources = [text for text in SOURCES if text]
    tokens = model.tokenizer.encode_sources(sources)
    for beam in (1, 5):
        plain = model.generate(tokens, DecodingSettings(beam_size=beam, max_length=12))
        # The same batch: floating-point sums may differ between batches of other shapes.
        order = sorted(range(len(tokens)), key=lambda i: -len(tokens[i]))
        plain = model.generate([tokens[i] for i in order], DecodingSettings(beam_size=beam, max_length=12))
        got = translator.translate(sources, weight=0, beam_size=beam)
        assert [got[i].tokens for i in order] == [nbest[0].tokens for nbest in plain]


def test_neighbours_change_the_output(translator):
    assert translator.translate(SOURCES, weight=0) != translator.translate(SOURCES, weight=0.9)


@pytest.mark.parametrize("decoding", [{"beam_size": 1}, {"sample": True, "seed": 3}])
def test_finished_outputs_are_not_searched_for(translator, number_corpus, decoding, monkeypatch):
    sources = [line.split("\t")[0] for line in number_corpus.read_text().splitlines()[:16]]
    settings = {"k": 1, "weight": 1.0, "temperature": 1.0, **decoding}
    alone = [translator.translate([source], **settings)[0] for source in sources]
    retriever, asked = translator.decoder.retriever(translator.decoder.settings()), []
    retrieve = retriever.retrieve
    monkeypatch.setattr(
        retriever, "retrieve", lambda queries, *rest: (asked.append(len(queries)), retrieve(queries, *rest))[1]
    )
    together = translator.translate(sources, **settings)
    assert together == alone  # every choice is certain, so sampling is no lottery
    lengths = [len(output.tokens) for output in together]
    assert len(set(lengths)) > 1
    assert sum(asked) <= sum(lengths)


def test_a_weight_of_one_repeats_the_datastore(translator, number_corpus):
    """With weight 1 and one neighbour, a training source gives its training target."""
    pairs = [line.split("\t") for line in number_corpus.read_text().splitlines()]
    unique = [pair for pair in pairs if sum(other[0] == pair[0] for other in pairs) == 1][:20]
    got = translator.translate([s for s, _ in unique], k=1, weight=1.0, temperature=1.0, beam_size=1)
    assert [str(text) for text in got] == [t for _, t in unique]


def test_a_translation_is_a_string_that_knows_more(translator):
    first, *_ = translator.translate(["5 6 7"], nbest=3)
    assert isinstance(first, str)
    assert isinstance(first, Translation)
    assert first.source == "5 6 7"
    assert first == first.text == translator.model.tokenizer.decode(first.tokens)
    assert len(first.alternatives) == 2
    assert len({tuple(one.tokens) for one in (first, *first.alternatives)}) == 3


def test_one_sentence_gives_one_translation(translator):
    one = translator.translate("5 6 7")
    assert isinstance(one, Translation)
    [same] = translator.translate(["5 6 7"])
    assert (one, one.tokens, one.score) == (same, same.tokens, same.score)


def test_empty_lines_stay_empty(translator):
    assert translator.translate(["", "  "]) == ["", ""]


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_the_batch_does_not_matter(translator, batch_size):
    assert translator.translate(SOURCES, batch_size=batch_size) == translator.translate(SOURCES)
    assert translator.translate(SOURCES, batch_tokens=7 * batch_size) == translator.translate(SOURCES)


def test_a_budget_of_no_tokens_is_refused(translator):
    with pytest.raises(InvalidSetting, match="Batch-tokens must be at least 1, not 0"):
        translator.translate(SOURCES, batch_tokens=0)


def test_sentences_that_are_too_long_are_cut_and_say_so(translator):
    long, short = translator.translate([" ".join(["5"] * 300), "5 6"], beam_size=1)
    assert (long.source_cut, short.source_cut) == (True, False)
    assert len(translator.translate(["5 6"], max_length=1000, beam_size=1, weight=0)[0].tokens) <= 127


def test_sampling_has_a_seed(translator):
    options = {"sample": True, "beam_size": 1, "nbest": 4}
    one = translator.translate(["5 6 7"], seed=1, **options)[0]
    assert one.alternatives == translator.translate(["5 6 7"], seed=1, **options)[0].alternatives
    others = [translator.translate(["5 6 7"], seed=seed, **options)[0].alternatives for seed in range(2, 6)]
    assert any(other != one.alternatives for other in others)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"k": 0}, "K must be at least 1"),
        ({"temperature": 0.0}, "temperature must be greater"),
        ({"weight": 1.5}, "weight must lie between"),
        ({"skip": "always"}, "Skip must be learned"),
        ({"beam_size": 0}, "beam size must be"),
        ({"nbest": 9}, "Nbest cannot be larger"),
        ({"colour": "red"}, "no setting 'colour'"),
        ({"index": "other"}, "has no index 'other'"),
        ({"retriever": "other"}, "There is no retriever 'other'"),
        ({"combiner": "other"}, "There is no combiner 'other'"),
    ],
)
def test_bad_settings_are_one_sentence(option, sentence, translator):
    with pytest.raises((InvalidSetting, NotFound), match=sentence):
        translator.translate(["5"], **option)


@pytest.mark.parametrize("part", ["retriever", "combiner"])
def test_a_wrong_name_is_refused_before_any_input(part, number_store, translator):
    with pytest.raises(InvalidSetting, match=f"There is no {part} 'other'"):
        Translator(number_store, translator.model, **{part: "other"})


def test_another_model_is_refused(number_store, save_model):
    with pytest.raises(ModelMismatch, match=r"was made with the model .* their weights differ"):
        Translator(number_store, model=save_model("marian", 1))


def test_a_model_that_moved_can_be_given(number_store, save_model, tmp_path):
    import shutil

    shutil.copytree(save_model(), tmp_path / "moved")
    moved = Translator(number_store, model=str(tmp_path / "moved"), max_length=12)
    assert moved.translate(["5 6 7"]) == Translator(number_store, max_length=12).translate(["5 6 7"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_runs_and_is_close(number_store, translator, dtype):
    half = Translator(number_store, dtype=dtype, max_length=12)
    assert half.store.manifest.model.fingerprint == translator.model.fingerprint.weights
    pair = TokenPair([5, 6, END], [7, 8, END])
    keys, log_probs = half.model.score([pair])
    wanted_keys, wanted = translator.model.score([pair])
    assert keys.dtype == getattr(torch, dtype)
    np.testing.assert_allclose(keys.float(), wanted_keys, atol=0.1, rtol=0.1)
    np.testing.assert_allclose(log_probs, wanted, atol=0.2)
    assert len(half.translate(SOURCES)) == len(SOURCES)


def test_an_ensemble_of_the_same_model_twice_changes_nothing(number_store, save_model, translator):
    twice = Translator(number_store, ensemble=[save_model()], max_length=12)
    assert twice.translate(SOURCES) == translator.translate(SOURCES)


def test_an_ensemble_averages_and_is_adapted(number_store, save_model, translator):
    both = Translator(number_store, ensemble=[save_model("marian", 1)], max_length=12)
    pair = TokenPair([5, 6, END], [7, 8, END])
    other = load_model(ModelSettings(save_model("marian", 1)))
    mean = (translator.model.score([pair])[1].exp() + other.score([pair])[1].exp()) / 2
    np.testing.assert_allclose(both.model.score([pair])[1].exp(), mean, atol=1e-6)
    assert both.translate(SOURCES, weight=0) != both.translate(SOURCES, weight=0.9)


def test_an_ensemble_needs_one_vocabulary(number_store):
    with pytest.raises(KnnSeqError, match="vocabularies differ"):
        Translator(number_store, ensemble=["firefox:pt-en"])


class TestExplanations:
    def test_probabilities_add_up(self, translator):
        best = translator.translate(["5 6 7"])[0]
        explanation = explain(translator, [best])[0]
        assert len(explanation.tokens) == len(best.tokens)
        for token in explanation.tokens:
            assert sum(one.probability for one in token.neighbours) == pytest.approx(1, abs=1e-5)
            right = sum(one.probability for one in token.neighbours if one.token == token.token)
            assert token.neighbour_probability == pytest.approx(right, abs=1e-5)
            mixture = token.weight * right + (1 - token.weight) * token.model_probability
            assert token.probability == pytest.approx(mixture, abs=1e-5)
        assert explanation.log_probability == pytest.approx(
            sum(np.log(token.probability) for token in explanation.tokens)
        )

    def test_a_training_sentence_is_its_own_nearest(self, translator, number_store):
        source, target = number_store.texts[11]
        tokens = translator.model.tokenizer.encode_targets([target])[0]
        explanation = explain(translator, [Translation(target, source, tokens)])[0]
        assert explanation.sentences()[0][0] == 11
        nearest = [token.neighbours[0] for token in explanation.tokens]
        assert [one.sentence for one in nearest] == [11] * len(tokens)
        assert [one.position for one in nearest] == list(range(len(tokens)))
        assert max(one.distance for one in nearest) < 1e-2

    def test_an_empty_translation_has_nothing_to_explain(self, translator):
        assert explain(translator, translator.translate([""]))[0].tokens == []


def test_equal_prefixes_are_searched_once():
    sentences = torch.tensor([0, 0, 0, 1, 1, 1])
    prefixes = torch.tensor([[4, 5], [4, 5], [4, 6], [4, 5], [4, 5], [4, 5]])
    first, of_row = distinct_prefixes(sentences, prefixes)
    assert first == [0, 2, 3]
    assert of_row == [0, 0, 1, 2, 2, 2]
    first, of_row = distinct_prefixes(sentences, prefixes[:, :0])
    assert first == [0, 3]
    assert of_row == [0, 0, 0, 1, 1, 1]


def test_beams_that_start_alike_are_one_query(translator, monkeypatch):
    retriever = translator.decoder.retriever(translator.decoder.settings())
    rows, search = [], retriever.retrieve
    monkeypatch.setattr(
        retriever, "retrieve", lambda queries, *rest: rows.append(len(queries)) or search(queries, *rest)
    )
    translator.translate(["5 6 7", "8 9"], beam_size=4)
    assert rows[0] == 2
    assert max(rows) == 8


def test_keys_can_be_taken_anywhere(tmp_path, save_model, number_corpus):
    path = "model.decoder.layers.0.fc2:output"
    store = Datastore.build(tmp_path / "store", save_model(), number_corpus, key=path, index_recipe="Flat")
    assert Translator(store).translate(["5 6"])[0].tokens
    assert store.keys.shape[1] == 32
    keys = {key: make_model("marian", key=key).keys([TokenPair([5, END], [6, END])]) for key in ("ffn_in", "ffn_out")}
    assert not torch.allclose(keys["ffn_in"], keys["ffn_out"])
    layer = make_model("marian").network.model.decoder.layers[-1]
    wanted = layer.fc2(layer.activation_fn(layer.fc1(keys["ffn_in"])))
    torch.testing.assert_close(keys["ffn_out"], wanted)


def test_an_unknown_key_is_refused():
    with pytest.raises(KnnSeqError, match=r"path of the last decoder layer is 'model.decoder.layers.1'"):
        make_model("marian", key="model.nothing")

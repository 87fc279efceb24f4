from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from skipping import SlowRule
from tiny_models import END

from knn_seq import Datastore, Translation, Translator
from knn_seq.decoding.step import combiner_inputs
from knn_seq.explain import changed_tokens, explain, to_dicts
from knn_seq.explain.reasons import agreement
from knn_seq.index import Neighbours
from knn_seq.likelihood import predictions
from knn_seq.models import TokenPair

SOURCES = ["5 6 7", "8", "", "9 10 11 12 13", "20 21 22 23 24 25 26"]
SETTINGS = {"k": 6, "temperature": 30.0, "weight": 0.7}


@pytest.fixture(scope="module")
def subset_store(tmp_path_factory, save_model, number_corpus):
    path = tmp_path_factory.mktemp("explained") / "store"
    options = {"index_recipe": "Flat", "sentence_search": "encoder", "codes": "Flat", "calibration_sentences": 0}
    return Datastore.build(path, save_model(), number_corpus, **options)


@pytest.fixture(scope="module")
def learned_translator(tmp_path_factory, save_model, number_corpus):
    """With a combiner that was trained by the build, whether it is better than fixed settings or not."""
    path = tmp_path_factory.mktemp("learned") / "store"
    store = Datastore.build(path, save_model(), number_corpus, index_recipe="Flat")
    return Translator(store, combiner="learned", k=6, max_length=12)


@pytest.fixture(scope="module")
def translators(subset_store, save_model, number_corpus):
    options = {"max_length": 12, **SETTINGS}
    other = save_model("marian", 1)
    return {
        "full": Translator(subset_store, **options),
        "distance": Translator(subset_store, combiner="distance", **options),
        "subset": Translator(subset_store, retriever="subset", subset_size=9, **options),
        "memory": Translator(translation_memory=number_corpus, model=save_model(), **options),
        "ensemble": Translator(subset_store, ensemble=[other], **options),
    }


def slow_reference(translator, translation, search):
    """(p, p_MT, p_kNN, λ, the model's choice, whether it was changed) of each token: a step at a time, dense."""
    model, vocabulary = translator.model, 61
    lead, *others = [model] if not hasattr(model, "lead") else [model.lead, *model.followers]
    [source], _ = translator.read([translation.source])
    retriever, combiner = translator.decoder.retriever(search), translator.decoder.combiner(search)
    prepared = retriever.prepare([source], search)
    rule = SlowRule(translator.store) if search.skip else None
    rows = []
    for step, token in enumerate(translation.tokens):
        pair = TokenPair(source.tokens, translation.tokens[: step + 1])
        keys, log_probs = lead.score([pair])
        p_model = log_probs[-1].exp()
        for other in others:
            p_model = p_model + other.score([pair]).log_probs[-1].exp()
        p_model = (p_model / (1 + len(others))).double().numpy()
        choice = int(p_model.argmax())
        found = retriever.retrieve(keys[-1:], torch.zeros(1, dtype=torch.int64), search, prepared)
        written = translation.tokens[step - 1] if step else None
        if search.weight == 0 or (rule and not rule.needed(written, np.log(p_model))):
            found = Neighbours.none(1, search.k)
        elif rule:
            rule.found(found)
        p_neighbours = np.zeros(vocabulary)
        inputs = combiner_inputs(
            combiner.best_log_probs, keys[-1:], found, torch.from_numpy(p_model).float().log().unsqueeze(0)
        )
        combination = combiner.combine(inputs, search)
        for value, part in zip(found.values[0].tolist(), combination.probabilities[0].tolist(), strict=True):
            p_neighbours[value] += part
        weight = combination.row_weights().item()
        mixture = weight * p_neighbours + (1 - weight) * p_model
        changed = bool(token != choice and mixture[token] > mixture[choice])
        rows.append((mixture[token], p_model[token], p_neighbours[token], weight, str(choice), changed))
    return rows


@pytest.mark.parametrize("name", ["full", "distance", "subset", "memory", "ensemble"])
def test_figures_agree_with_a_slow_reference(translators, name):
    translator = translators[name]
    translations = translator.translate(SOURCES, nbest=2)
    every = [one for best in translations for one in (best, *best.alternatives)]
    changes = 0
    for explanation in explain(translator, every):
        wanted = slow_reference(translator, explanation.translation, translator.decoder.settings())
        assert len(explanation.tokens) == len(wanted) == len(explanation.translation.tokens)
        for explained, (p, p_model, p_neighbours, weight, choice, changed) in zip(
            explanation.tokens, wanted, strict=True
        ):
            assert explained.probability == pytest.approx(p, abs=1e-5)
            assert explained.model_probability == pytest.approx(p_model, abs=1e-5)
            assert explained.neighbour_probability == pytest.approx(p_neighbours, abs=1e-4)
            assert explained.weight == pytest.approx(weight, abs=1e-5)
            assert (explained.model_choice, explained.changed) == (choice, changed)
            changes += changed
    assert changes  # or the flag was not tried


@pytest.mark.parametrize("name", ["full", "distance", "subset", "memory", "ensemble"])
def test_the_batch_does_not_matter(translators, name, monkeypatch):
    translator = translators[name]
    translations = translator.translate(SOURCES)
    together = explain(translator, translations)
    monkeypatch.setattr(predictions, "SCORE_TOKENS", 20)  # several batches
    in_batches = explain(translator, translations)
    alone = [explain(translator, [translation])[0] for translation in translations]
    for one, batched, other in zip(together, in_batches, alone, strict=True):
        assert one.translation is batched.translation is other.translation
        assert len(one.tokens) == len(one.translation.tokens)
        for left, middle, right in zip(one.tokens, batched.tokens, other.tokens, strict=True):
            assert left.token == middle.token == right.token
            assert left.probability == pytest.approx(right.probability, abs=1e-5)
            assert middle.probability == pytest.approx(right.probability, abs=1e-5)
            assert left.model_choice_probability == pytest.approx(right.model_choice_probability, abs=1e-5)
            assert [one.entry for one in left.neighbours] == [one.entry for one in right.neighbours]
            wanted = [one.probability for one in right.neighbours]
            assert [one.probability for one in left.neighbours] == pytest.approx(wanted, abs=1e-5)


def test_tokens_are_named_and_all_neighbours_are_there(translators):
    translator = translators["full"]
    [translation] = translator.translate(["5 6 7"])
    [explanation] = explain(translator, [translation])
    assert [explained.token for explained in explanation.tokens] == [
        translator.model.tokenizer.token(token) for token in translation.tokens
    ]
    for explained in explanation.tokens:
        assert len(explained.neighbours) == SETTINGS["k"]
        assert [neighbour.distance for neighbour in explained.neighbours] == sorted(
            neighbour.distance for neighbour in explained.neighbours
        )
        for neighbour in explained.neighbours:
            row = translator.store.values[neighbour.sentence]
            assert neighbour.token == translator.model.tokenizer.token(int(row[neighbour.position]))


def test_what_a_weight_depends_on_is_told(translators, learned_translator):
    for translator in (translators["full"], translators["memory"], learned_translator):
        explanations = explain(translator, translator.translate(SOURCES))
        for explained in (token for one in explanations for token in one.tokens):
            mass = defaultdict(float)
            for neighbour in explained.neighbours:
                mass[neighbour.token] += neighbour.probability
            if not mass:
                assert (explained.nearest_distance, explained.relative_distance, explained.agreement) == (None,) * 3
                continue
            shares = [
                sum(neighbour.token == token for neighbour in explained.neighbours) / len(explained.neighbours)
                for token, its in mass.items()
                if its == pytest.approx(max(mass.values()), abs=1e-6)
            ]
            assert any(explained.agreement == pytest.approx(share) for share in shares)
            assert explained.nearest_distance == explained.neighbours[0].distance
            assert explained.model_certainty >= explained.model_probability
            if explained.token == explained.model_choice:
                assert explained.model_certainty == explained.model_probability
        figures = explanations[0].to_dict(translator.store)["tokens"][0]
        for name in ("nearest_distance", "agreement", "model_certainty"):
            assert figures[name] == pytest.approx(getattr(explanations[0].tokens[0], name), rel=1e-5)


def test_distances_are_told_in_units_of_a_usual_one_where_that_is_known(translators, learned_translator):
    shape = learned_translator.decoder.combiner(learned_translator.decoder.settings()).shape
    [trained] = explain(learned_translator, learned_translator.translate(["5 6 7"]))
    for token in trained.tokens:
        assert token.relative_distance == pytest.approx((token.nearest_distance - shape.offset) / shape.scale)
    median = learned_translator.store.manifest.tuned["full/fixed"]["median_distance"]
    [fixed] = explain(learned_translator, learned_translator.translate(["5 6 7"]), combiner="fixed")
    for token in fixed.tokens:
        assert token.relative_distance == pytest.approx(token.nearest_distance / median)
    unknown = translators["full"]  # built without a measurement
    assert {token.relative_distance for token in explain(unknown, unknown.translate(["5"]))[0].tokens} == {None}
    figures = explain(unknown, unknown.translate(["5"]))[0].to_dict(unknown.store)
    assert figures["tokens"][0]["relative_distance"] is None


def test_agreement_counts_neighbours_of_the_most_probable_value():
    values = torch.tensor([[7, 7, 9, 9], [3, 0, 5, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    ids = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4], [8, -1, -1, -1], [-1, -1, -1, -1]])
    probabilities = torch.tensor([[0.1, 0.2, 0.6, 0.1], [0.4, 0.3, 0.1, 0.2], [1.0, 0, 0, 0], [0.0, 0, 0, 0]])
    neighbours = Neighbours(torch.ones(4, 4), values, ids)
    assert agreement(neighbours, probabilities).tolist() == [0.5, 0.5, 1.0, 0.0]


def test_fewer_neighbours_can_be_told_of_without_changing_the_figures(translators):
    translator = translators["full"]
    translations = translator.translate(SOURCES)
    every, few = explain(translator, translations), explain(translator, translations, neighbours=2)
    for complete, short in zip(every, few, strict=True):
        for one, other in zip(complete.tokens, short.tokens, strict=True):
            assert other.neighbours == one.neighbours[:2]
            assert (other.probability, other.changed) == (one.probability, one.changed)
    assert all(not e.neighbours for one in explain(translator, translations, neighbours=0) for e in one.tokens)


def test_without_weight_all_is_the_models_and_nothing_is_searched(translators, monkeypatch):
    translator = translators["full"]
    [translation] = translator.translate(["5 6 7"], weight=0, beam_size=1)
    monkeypatch.setattr(translator.decoder, "retriever", None)
    [explanation] = explain(translator, [translation], weight=0)
    for explained in explanation.tokens:
        assert (explained.neighbours, explained.weight, explained.neighbour_probability) == ([], 0, 0)
        assert explained.probability == explained.model_probability == explained.model_choice_probability
        assert explained.token == explained.model_choice
    assert changed_tokens(translator, [translation], weight=0) == [[False] * len(translation.tokens)]


@pytest.mark.parametrize("retriever", ["full", "subset"])
def test_what_decoding_skipped_has_no_neighbours(skip_store, retriever, monkeypatch):
    translator = Translator(
        skip_store, retriever=retriever, combiner="fixed", skip="learned", max_length=12, **SETTINGS
    )
    translations = translator.translate(SOURCES)
    search, asked = translator.decoder.settings(), []
    for explanation in explain(translator, translations):
        wanted = slow_reference(translator, explanation.translation, search)
        for explained, (p, _, _, weight, *_) in zip(explanation.tokens, wanted, strict=True):
            assert explained.probability == pytest.approx(p, abs=1e-5)
            assert explained.weight == pytest.approx(weight, abs=1e-5)
            assert bool(explained.neighbours) == (weight > 0)
            asked.append(weight > 0)
        own = sum(math.log(explained.probability) for explained in explanation.tokens)
        assert explanation.translation.score == pytest.approx(own, abs=1e-3)
    assert set(asked) == {True, False}
    rows, kind = [], type(translator.decoder.retriever(search))
    retrieve = kind.retrieve
    monkeypatch.setattr(
        kind, "retrieve", lambda self, keys, *rest: rows.append(len(keys)) or retrieve(self, keys, *rest)
    )
    explain(translator, translations)
    assert sum(rows) == sum(asked)


@pytest.mark.parametrize("name", ["full", "subset", "memory"])
def test_changed_tokens_are_the_flags_of_explanations(translators, name):
    translator = translators[name]
    translations = translator.translate(SOURCES)
    flags = changed_tokens(translator, translations, weight=0.8)
    assert flags == [[e.changed for e in one.tokens] for one in explain(translator, translations, weight=0.8)]
    assert flags[2] == []
    assert any(map(any, flags))


def test_a_token_that_neither_wanted_is_not_changed_by_neighbours(translators):
    """Somebody else's word, which the neighbours hold less likely than the model's own, is not their doing."""
    translator = translators["full"]
    [best] = translator.translate(["5 6 7"], weight=0, beam_size=1)
    choice = best.tokens[0]
    settings = translator.decoder.settings()
    retriever = translator.decoder.retriever(settings)
    keys = translator.model.score([TokenPair([5, 6, 7, END], [choice])]).keys
    named = set(retriever.retrieve(keys, torch.zeros(1, dtype=torch.int64), settings, None).values[0].tolist())
    odd = next(token for token in range(4, 61) if token not in named | {choice})
    translation = Translation(str(odd), "5 6 7", [odd, END])
    [explanation] = explain(translator, [translation])
    first = explanation.tokens[0]
    assert first.token != first.model_choice
    assert first.probability < first.model_choice_probability
    assert not first.changed
    assert changed_tokens(translator, [translation])[0][0] is False


def test_nothing_to_explain(translators):
    translator = translators["full"]
    assert explain(translator, []) == []
    assert changed_tokens(translator, []) == []
    [empty] = explain(translator, translator.translate([" "]))
    assert (empty.tokens, empty.log_probability) == ([], 0)
    assert empty.to_dict(translator.store) == {"source": " ", "translation": "", "log_probability": 0, "tokens": []}


def test_dictionaries_hold_what_the_explanation_says(translators):
    translator = translators["memory"]
    explanations = explain(translator, translator.translate(SOURCES))
    several = to_dicts(explanations, translator.store)
    for explanation, figures in zip(explanations, several, strict=True):
        assert figures == explanation.to_dict(translator.store)
        assert figures["log_probability"] == pytest.approx(explanation.log_probability, rel=1e-5)
        assert (figures["source"], figures["translation"]) == (explanation.translation.source, explanation.translation)
        for explained, token in zip(explanation.tokens, figures["tokens"], strict=True):
            for name in ("probability", "model_probability", "neighbour_probability", "weight"):
                assert token[name] == pytest.approx(getattr(explained, name), rel=1e-5)
            assert (token["token"], token["changed"]) == (explained.token, explained.changed)
            for found, neighbour in zip(explained.neighbours, token["neighbours"], strict=True):
                assert (neighbour["source"], neighbour["target"]) == translator.store.texts[found.sentence]
                for name in ("entry", "sentence", "position", "token"):
                    assert neighbour[name] == getattr(found, name)
                for name in ("distance", "probability"):
                    assert neighbour[name] == pytest.approx(getattr(found, name), rel=1e-5)


def test_each_sentence_is_read_once(translators, monkeypatch):
    translator = translators["full"]
    explanations = explain(translator, translator.translate(SOURCES))
    read = []
    kind = type(translator.store.texts)
    get = kind.__getitem__
    monkeypatch.setattr(kind, "__getitem__", lambda self, number: read.append(number) or get(self, number))
    to_dicts(explanations, translator.store)
    assert len(read) == len(set(read)) > 3


def test_an_impossible_translation_has_no_finite_probability(translators, monkeypatch):
    translator = translators["full"]
    [explanation] = explain(translator, translator.translate(["5 6 7"]))
    object.__setattr__(explanation.tokens[0], "probability", 0.0)
    assert explanation.log_probability == -math.inf
    assert explanation.to_dict(translator.store)["log_probability"] is None

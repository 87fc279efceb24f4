from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tiny_models import END

from knn_seq import Datastore, Translation, Translator
from knn_seq.combine import COMBINERS
from knn_seq.explain import changed_tokens, explain, reading, to_dicts
from knn_seq.index import Neighbours
from knn_seq.models import TokenPair

SOURCES = ["5 6 7", "8", "", "9 10 11 12 13", "20 21 22 23 24 25 26"]
SETTINGS = {"k": 6, "temperature": 30.0, "weight": 0.7}


@pytest.fixture(scope="module")
def subset_store(tmp_path_factory, save_model, number_corpus):
    path = tmp_path_factory.mktemp("explained") / "store"
    options = {"index": "Flat", "sentences": "encoder", "codes": "Flat", "calibration_sentences": 0, "quiet": True}
    return Datastore.build(path, save_model(), number_corpus, **options)


@pytest.fixture(scope="module")
def translators(subset_store, save_model, number_corpus):
    options = {"max_length": 12, "quiet": True, **SETTINGS}
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
    retriever, combiner = translator.decoder.retriever(search), COMBINERS.get(search.combiner)(search)
    prepared = retriever.prepare([source], search.subset_size)
    rows = []
    for step, token in enumerate(translation.tokens):
        pair = TokenPair(source.tokens, translation.tokens[: step + 1])
        keys, log_probs = lead.distributions([pair])
        p_model = log_probs[-1].exp()
        for other in others:
            p_model = p_model + other.distributions([pair])[1][-1].exp()
        p_model = (p_model / (1 + len(others))).double().numpy()
        choice = int(p_model.argmax())
        found = retriever.retrieve(keys[-1:], torch.zeros(1, dtype=torch.int64), search.k, prepared)
        if search.weight == 0 or (search.sure is not None and p_model[choice] >= search.sure):
            found = Neighbours.none(1, search.k)
        p_neighbours = np.zeros(vocabulary)
        for value, share in zip(found.values[0].tolist(), combiner.votes(found)[0].tolist(), strict=True):
            p_neighbours[value] += share
        weight = combiner.mixture_weights(found).item()
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
        wanted = slow_reference(translator, explanation.translation, translator.search)
        assert len(explanation.tokens) == len(wanted) == len(explanation.translation.tokens)
        for evidence, (p, p_model, p_neighbours, weight, choice, changed) in zip(
            explanation.tokens, wanted, strict=True
        ):
            assert evidence.probability == pytest.approx(p, abs=1e-5)
            assert evidence.model_probability == pytest.approx(p_model, abs=1e-5)
            assert evidence.neighbour_probability == pytest.approx(p_neighbours, abs=1e-4)
            assert evidence.weight == pytest.approx(weight, abs=1e-5)
            assert (evidence.model_choice, evidence.changed) == (choice, changed)
            changes += changed
    assert changes  # or the flag was not tried


@pytest.mark.parametrize("name", ["full", "distance", "subset", "memory", "ensemble"])
def test_the_batch_does_not_matter(translators, name, monkeypatch):
    translator = translators[name]
    translations = translator.translate(SOURCES)
    together = explain(translator, translations)
    monkeypatch.setattr(reading, "SCORE_TOKENS", 20)  # several batches
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
            assert [vote.entry for vote in left.votes] == [vote.entry for vote in right.votes]
            assert [vote.probability for vote in left.votes] == pytest.approx([v.share for v in right.votes], abs=1e-5)


def test_tokens_are_named_and_all_votes_are_there(translators):
    translator = translators["full"]
    [translation] = translator.translate(["5 6 7"])
    [explanation] = explain(translator, [translation])
    assert [evidence.token for evidence in explanation.tokens] == [
        translator.model.tokenizer.token(token) for token in translation.tokens
    ]
    for evidence in explanation.tokens:
        assert len(evidence.votes) == SETTINGS["k"]
        assert [vote.distance for vote in evidence.votes] == sorted(vote.distance for vote in evidence.votes)
        for vote in evidence.votes:
            row = translator.store.values[vote.sentence]
            assert vote.token == translator.model.tokenizer.token(int(row[vote.position]))


def test_fewer_votes_can_be_told_of_without_changing_the_figures(translators):
    translator = translators["full"]
    translations = translator.translate(SOURCES)
    for whole, few in zip(explain(translator, translations), explain(translator, translations, votes=2), strict=True):
        for one, other in zip(whole.tokens, few.tokens, strict=True):
            assert other.votes == one.votes[:2]
            assert (other.probability, other.changed) == (one.probability, one.changed)
    assert all(not e.votes for one in explain(translator, translations, votes=0) for e in one.tokens)


def test_without_weight_all_is_the_models_and_nothing_is_searched(translators, monkeypatch):
    translator = translators["full"]
    [translation] = translator.translate(["5 6 7"], weight=0, beam_size=1)
    monkeypatch.setattr(translator, "retriever", None)
    [explanation] = explain(translator, [translation], weight=0)
    for evidence in explanation.tokens:
        assert (evidence.votes, evidence.weight, evidence.neighbour_probability) == ([], 0, 0)
        assert evidence.probability == evidence.model_probability == evidence.model_choice_probability
        assert evidence.token == evidence.model_choice
    assert changed_tokens(translator, [translation], weight=0) == [[False] * len(translation.tokens)]


@pytest.mark.parametrize("name", ["full", "subset", "memory"])
def test_where_the_model_is_sure_nobody_is_asked(translators, name, monkeypatch):
    translator = translators[name]
    translations = translator.translate(SOURCES)
    choices = [e.model_choice_probability for one in explain(translator, translations, weight=0) for e in one.tokens]
    middle = len(choices) // 2
    sure = float(np.mean(sorted(choices)[middle : middle + 2]))  # between two of them
    for explanation in explain(translator, translations, confidence_threshold=sure):
        search, _ = translator.settings({"confidence_threshold": sure})
        for evidence, wanted in zip(
            explanation.tokens, slow_reference(translator, explanation.translation, search), strict=True
        ):
            assert evidence.probability == pytest.approx(wanted[0], abs=1e-5)
            assert evidence.weight == pytest.approx(wanted[3], abs=1e-5)
            assert bool(evidence.votes) == (wanted[3] > 0)
    asked = [evidence.weight > 0 for one in explain(translator, translations, confidence_threshold=sure) for evidence in one.tokens]
    assert any(asked)
    assert not all(asked)
    rows = []
    kind = type(translator.decoder.retriever())
    search_it = kind.retrieve
    monkeypatch.setattr(
        kind, "retrieve", lambda self, keys, *rest: rows.append(len(keys)) or search_it(self, keys, *rest)
    )
    explain(translator, translations, confidence_threshold=sure)
    assert sum(rows) == sum(asked)
    rows.clear()
    explain(translator, translations, confidence_threshold=min(choices) / 2)
    assert not rows


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
    retriever = translator.decoder.retriever()
    keys = translator.model.score([TokenPair([5, 6, 7, END], [choice])]).keys
    named = set(retriever.retrieve(keys, torch.zeros(1, dtype=torch.int64), SETTINGS["k"], None).values[0].tolist())
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
        for evidence, token in zip(explanation.tokens, figures["tokens"], strict=True):
            for name in ("probability", "model_probability", "neighbour_probability", "weight"):
                assert token[name] == pytest.approx(getattr(evidence, name), rel=1e-5)
            assert (token["token"], token["changed"]) == (evidence.token, evidence.changed)
            for vote, neighbour in zip(evidence.votes, token["neighbours"], strict=True):
                assert (neighbour["source"], neighbour["target"]) == translator.store.texts[vote.sentence]
                for name in ("entry", "sentence", "position", "token"):
                    assert neighbour[name] == getattr(vote, name)
                for name in ("distance", "share"):
                    assert neighbour[name] == pytest.approx(getattr(vote, name), rel=1e-5)


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

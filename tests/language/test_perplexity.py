"""Perplexity: of the model as Transformers has it, of kNN-LM and RetoMaton as slow references have it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from slow_pointers import SlowPointers

from knn_seq import Datastore, Translator
from knn_seq.build.clusters import store_clusters
from knn_seq.decoding import KnnDecoder
from knn_seq.language import perplexity, read_text, tune_text
from knn_seq.models import TokenPair, load_model
from knn_seq.settings import ModelSettings, SearchSettings
from knn_seq.storage.translation_memory import TranslationMemory


def direct_perplexity(folder, text, window, stride):
    """The sliding window of Transformers' own documentation."""
    network = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    losses, count, last = [], 0, 0
    for begin in range(0, tokens.shape[1], stride):
        end = min(begin + window, tokens.shape[1])
        inputs = tokens[:, begin:end]
        labels = inputs.clone()
        labels[:, : -(end - last)] = -100
        labels[:, 0] = -100
        with torch.no_grad():
            logits = network(inputs).logits
        kept = labels[:, 1:] != -100
        log_probs = torch.log_softmax(logits[:, :-1].double(), dim=-1)
        losses.append(-log_probs[kept].gather(1, labels[:, 1:][kept].unsqueeze(1)).sum().item())
        count += int(kept.sum())
        last = end
        if end == tokens.shape[1]:
            break
    return math.exp(sum(losses) / count), count


@pytest.mark.parametrize("kind", ["gpt2", "Llama", "Qwen2"])
@pytest.mark.parametrize(("stride", "context"), [(32, 32), (20, 44), (7, 30), (40, 24)])
def test_base_is_what_transformers_computes(kind, stride, context, language_model, test_file):
    folder = language_model(kind)
    model = load_model(ModelSettings(folder, prompt="{source}", device="cpu"))
    text = read_text(test_file, model, {"stride": stride, "context": context})
    decoder = KnnDecoder(TranslationMemory([("a", "b")]), model)
    found = perplexity(decoder, text, {"base": SearchSettings(weight=0.0)})
    wanted, count = direct_perplexity(folder, test_file.read_text(), stride + context, stride)
    assert found.scores[0].tokens == text.tokens == count
    assert found.scores[0].perplexity == pytest.approx(wanted, rel=1e-5, abs=1e-4)


@pytest.fixture(scope="module")
def translator(text_store):
    store_clusters(text_store, size=8)
    return Translator(text_store, device="cpu")


def slow_knn_lm(translator, text, settings):
    """log p of all tokens: one at a time, all keys, float64."""
    keys, values = translator.store.keys.astype(np.float64), translator.store.values.items
    total = 0.0
    for reference in text.references:
        queries, log_probs = translator.model.score([TokenPair(reference.source.tokens, reference.target)])
        for query, row, token in zip(queries.double().numpy(), log_probs.double(), reference.target, strict=True):
            distances = ((keys - query) ** 2).sum(axis=1)
            nearest = np.argsort(distances, kind="stable")[: settings.k]
            weights = np.exp(-(distances[nearest] - distances[nearest[0]]) / settings.temperature)
            p_knn = weights[values[nearest] == token].sum() / weights.sum()
            total += math.log(settings.weight * p_knn + (1 - settings.weight) * math.exp(row[token].item()))
    return total


def test_knn_lm_is_the_slow_reference(translator, test_file):
    text = read_text(test_file, translator.model)
    settings = translator.decoder.settings({"combiner": "fixed"})
    found = perplexity(translator.decoder, text, {"knn": settings})
    assert found.scores[0].log_likelihood == pytest.approx(slow_knn_lm(translator, text, settings), rel=1e-5)
    assert found.scores[0].searches_saved == 0


@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("agreement", [0.0, 0.7])
def test_retomaton_is_the_slow_reference(translator, test_file, clusters, agreement):
    text = read_text(test_file, translator.model, {"stride": 24, "context": 24})
    options = {"combiner": "fixed", "pointers": 2, "pointer_agreement": agreement, "clusters": clusters, "k": 8}
    settings = translator.decoder.settings(options)
    found = perplexity(translator.decoder, text, {"retomaton": settings}).scores[0]
    combiner = translator.decoder.combiner(settings)
    total, searched = 0.0, 0
    for reference in text.references:
        slow = SlowPointers(translator, reference.source.tokens, options)
        for place, token in enumerate(reference.target):
            prefix = reference.target[:place]
            total += slow.log_probs(prefix, combiner)[token].item()
            searched += slow.state(prefix)[4]
    assert found.log_likelihood == pytest.approx(total, rel=1e-4)
    assert found.searches_saved == pytest.approx(1 - searched / text.tokens)
    assert 0.1 < found.searches_saved < 0.95


def test_systems_share_a_search_and_agree_with_those_alone(translator, test_file):
    text = read_text(test_file, translator.model)
    named = {
        "base": {"weight": 0.0},
        "few": {"combiner": "fixed", "k": 4},
        "many": {"combiner": "fixed", "k": 16, "temperature": 3.0},
        "learned": {"combiner": "learned"},
        "pointers": {"combiner": "learned", "pointers": 2},
    }
    systems = {name: translator.decoder.settings(own) for name, own in named.items()}
    together = perplexity(translator.decoder, text, systems)
    for score in together.scores:
        [alone] = perplexity(translator.decoder, text, {score.name: systems[score.name]}).scores
        assert alone.log_likelihood == pytest.approx(score.log_likelihood, rel=1e-6)
        assert alone.searches_saved == score.searches_saved
    base, *others = together.scores
    assert all(score.perplexity < base.perplexity for score in others)
    assert base.word_perplexity == pytest.approx(base.perplexity ** (text.tokens / text.words))


def test_tuning_finds_the_most_likely_settings(translator, test_file):
    text = read_text(test_file, translator.model)
    settings = [translator.decoder.settings({"combiner": name}) for name in ("fixed", "learned")]
    tuned = tune_text(translator.decoder, text, settings, largest_k=16)
    assert [one.perplexity for one in tuned] == sorted(one.perplexity for one in tuned)
    for one in tuned:
        [score] = perplexity(translator.decoder, text, {"tuned": one.settings}).scores
        assert score.perplexity == pytest.approx(one.perplexity, rel=1e-5)
        before = translator.decoder.settings({"combiner": one.settings.combiner, "k": min(one.settings.k, 16)})
        [score] = perplexity(translator.decoder, text, {"before": before}).scores
        assert one.perplexity <= score.perplexity * 1.02
        assert one.perplexity < one.base_perplexity


def test_commands(tmp_path, language_model, text_file, test_file, knn_seq):
    store, model = tmp_path / "store", language_model()
    build = ("build", store, "--model", model, "--text", text_file, "--index-recipe", "Flat", "-q")
    code, _, err = knn_seq(*build)
    assert code == 0, err
    code, out, err = knn_seq("perplexity", store, "--text", test_file, "--json", tmp_path / "found.json", "-q")
    assert code == 0, err
    lines = out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:-1]] == [
        "base",
        "kNN-LM",
        "learned",
        "RetoMaton",
        "learned, pointers",
    ]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["signature"] == lines[-1]
    named = f"model:{Path(model).name}|"
    for part in ("stride:32", "window:64", named, "text:test.txt", "tokens:", "words:", "tokens/word:"):
        assert part in found["signature"]
    assert found["systems"][3]["searches_saved"] > 0
    code, out, err = knn_seq("perplexity", store, "--text", test_file, "--combiner", "fixed", "--pointers", "1", "-q")
    assert code == 0, err
    assert [line.split("  ")[0] for line in out.splitlines()[1:-1]] == ["base", "kNN-LM", "RetoMaton"]
    code, out, err = knn_seq("train", store, "--text", test_file, "--combiner", "adaptive", "-q")
    assert code == 0, err
    assert "adaptive" in out
    code, out, err = knn_seq("tune", store, "--text", test_file, "-q")
    assert code == 0, err
    best = out.splitlines()[1].split()[0]
    assert Datastore(store).search_settings.combiner == best
    assert knn_seq("perplexity", store) == (
        2,
        "",
        "knn-seq: Give the text whose perplexity is wanted: --text FILE.\n",
    )

"""Settings measured on held-out sentences, against a slow search of the same choices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tiny_models import make_model

from knn_seq.datastore import Datastore
from knn_seq.decoding import KnnDecoder
from knn_seq.likelihood import Reference, calibrate, predictions
from knn_seq.likelihood.calibrate import (
    FEWEST_TOKENS,
    SAMPLED_SHARE,
    TEXT_TOKENS,
    WINDOW_TOKENS,
    held_out,
    sample_size,
    some_of_text,
)
from knn_seq.models import Source, TokenPair
from knn_seq.settings import SearchSettings
from knn_seq.storage.translation_memory import TranslationMemory

SENTENCES = 24


def weight_of(combiner, weight, nearest, temperature):
    return weight if combiner == "fixed" else weight * min(1.0, max(0.0, 1 - nearest / temperature))


def slow_calibration(store, model, combiner):
    """Every choice in float64, token by token, over all keys but those of the token's own sentence."""
    sample = np.random.default_rng(0).permutation(len(store.values))[:SENTENCES]
    keys, values = store.keys.astype(np.float64), store.values.items
    sentence_of = store.values.row_of(np.arange(len(values)))
    tokens = []
    for row in sample:
        target = store.values[row].tolist()
        queries, distributions = model.score([TokenPair(store.sources[row].tolist(), target)])
        log_probs = distributions[range(len(target)), target]
        others = np.flatnonzero(sentence_of != row)
        for query, token, log_prob in zip(queries.double().numpy(), target, log_probs.tolist(), strict=True):
            distances = ((keys[others] - query) ** 2).sum(axis=1)
            order = np.argsort(distances)[:64]
            tokens.append((distances[order], values[others[order]] == token, math.exp(log_prob)))
    every = np.sort(np.concatenate([distances for distances, _, _ in tokens]))
    median = every[(len(every) - 1) // 2]
    results = []
    for k in (4, 8, 16, 32, 64):
        for step in range(-10, 5 if combiner == "fixed" else 9):
            temperature = float(f"{2.0 ** (step / 2) * median:.3g}")
            shares = []
            for distances, right, _ in tokens:
                of_neighbours = np.exp(-(distances[:k] - distances[0]) / temperature)
                shares.append((of_neighbours * right[:k]).sum() / of_neighbours.sum())
            for weight in np.arange(2, 19) / 20:
                likelihood = 0.0
                for (distances, _, model_share), share in zip(tokens, shares, strict=True):
                    own = weight_of(combiner, weight, distances[0], temperature)
                    likelihood += math.log(own * share + (1 - own) * model_share)
                results.append((likelihood / len(tokens), k, temperature, weight))
    best = max(results)[0]
    k = min(k for value, k, _, _ in results if value >= best - 0.005)
    return k, *max(result for result in results if result[1] == k)[2:], median


@pytest.fixture(scope="module")
def store(tmp_path_factory, save_model):
    """Pairs of which some say nearly the same, so that neighbours are worth something."""
    generator = np.random.default_rng(7)
    lines = []
    for _ in range(30):
        source, target = (generator.integers(4, 60, 6).tolist() for _ in range(2))
        for ending in generator.integers(4, 60, 2).tolist():
            lines.append(f"{' '.join(map(str, [*source, ending]))}\t{' '.join(map(str, [*target, ending]))}\n")
    folder = tmp_path_factory.mktemp("calibration")
    (folder / "train.tsv").write_text("".join(lines))
    options = {"index_recipe": "Flat", "calibration_sentences": SENTENCES, "combiner": "fixed"}
    return Datastore.build(folder / "store", save_model(), folder / "train.tsv", **options)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
def test_the_choice_is_the_most_likely(store, combiner):
    decoder = KnnDecoder(store, store.load_model())
    got = calibrate(decoder, SearchSettings(combiner=combiner), SENTENCES)
    k, temperature, weight, median = slow_calibration(store, decoder.model, combiner)
    assert (got["k"], got["temperature"], got["weight"]) == (k, pytest.approx(temperature, rel=0.011), weight)
    assert got["median_distance"] == pytest.approx(median, rel=1e-3)
    if combiner == "fixed":
        assert {"retriever": "full", "combiner": "fixed", **got} == store.manifest.defaults


def test_without_a_sample_the_defaults_stay(tmp_path, save_model, number_corpus):
    store = Datastore.build(tmp_path / "store", save_model(), number_corpus, calibration_sentences=0)
    assert store.search_settings == SearchSettings()


def random_memory(copies):
    """Sentence pairs that have nothing in common but one word of the source, each so many times."""
    generator = np.random.default_rng(2)
    sides = [[" ".join(map(str, generator.integers(5, 60, 7))) for _ in range(2)] for _ in range(20)]
    return TranslationMemory([(f"4 {source}", target) for source, target in sides for _ in range(copies)])


def memory_settings(combiner):
    return SearchSettings(retriever="memory", combiner=combiner)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
def test_a_sentence_is_not_predicted_from_itself(combiner):
    model, found = make_model("marian"), {}
    for copies in (1, 2):
        decoder = KnnDecoder(random_memory(copies), model)
        found[copies] = calibrate(decoder, memory_settings(combiner), 20 * copies)
    assert found[1]["weight"] < 0.8
    assert found[2]["weight"] == 0.9  # the copy is another sentence


def test_every_retriever_gets_the_rows_of_its_batch(monkeypatch):
    """Batches of several sentences give what sentences one at a time give."""
    decoder = KnnDecoder(random_memory(2), make_model("marian"))
    together = calibrate(decoder, memory_settings("distance"), 12)
    monkeypatch.setattr(predictions, "SCORE_TOKENS", 1)
    assert calibrate(decoder, memory_settings("distance"), 12) == together


def test_nothing_found_is_nothing_chosen():
    decoder = KnnDecoder(TranslationMemory([("5 6", "7 8"), ("9", "10")]), make_model("marian"))
    assert calibrate(decoder, memory_settings("distance"), 2) == {}
    assert calibrate(decoder, memory_settings("distance"), 0) == {}


@pytest.mark.parametrize("length", [1, 7, 32, 300])
@pytest.mark.parametrize("total", [2, 40, 300, 3_000, 100_000])
def test_the_sample_is_a_small_part_of_what_is_searched(length, total):
    lengths = np.random.default_rng(length).integers(1, 2 * length + 1, min(256, total))
    size = sample_size(lengths, total)
    assert 1 <= size <= len(lengths)
    held = lengths[:size].sum()
    assert held - lengths[:size][-1] < max(FEWEST_TOKENS, lengths.mean() * total / SAMPLED_SHARE)
    if size < len(lengths):  # enough to choose from
        assert held >= FEWEST_TOKENS
    if total >= 256 * SAMPLED_SHARE * 1.5:  # a large datastore affords all of it
        assert size == len(lengths)


def test_an_empty_sample():
    assert sample_size(np.empty(0, np.int64), 5) == 0


def test_few_sentences_of_a_small_datastore_are_scored():
    """300 sentences of 30 tokens: what is held out must not take longer than their keys."""
    generator = np.random.default_rng(3)
    texts = [tuple(" ".join(map(str, generator.integers(4, 60, 30))) for _ in range(2)) for _ in range(300)]
    decoder = KnnDecoder(TranslationMemory(texts), make_model("marian"))
    references = held_out(decoder, 256)
    assert 20 <= len(references) <= 300 / 8
    assert len({reference.sentence for reference in references}) == len(references)


def test_of_a_text_some_tokens_of_some_windows_are_enough():
    lengths = [WINDOW_TOKENS + 5, 2] * (TEXT_TOKENS // WINDOW_TOKENS)
    windows = [Reference(Source("", [9]), [7] * length, number) for number, length in enumerate(lengths)]
    some = some_of_text(windows)
    assert [len(each.target) for each in some[:3]] == [WINDOW_TOKENS, 2, WINDOW_TOKENS]
    assert [each.sentence for each in some] == list(range(len(some)))
    assert len(some) < len(windows)
    assert TEXT_TOKENS <= sum(len(each.target) for each in some) < TEXT_TOKENS + WINDOW_TOKENS
    assert some_of_text([]) == []

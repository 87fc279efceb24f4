from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import END, make_model

from knn_seq import KnnSeqError, Translation, Translator
from knn_seq.combine import COMBINERS
from knn_seq.decoding.step import KnnBatch
from knn_seq.explain import explain
from knn_seq.models import Source, TokenPair
from knn_seq.retrieve import memory as memory_module
from knn_seq.retrieve.memory import MemoryRetriever
from knn_seq.sentences.base import sentence_search
from knn_seq.settings import DecodingSettings, SearchSettings
from knn_seq.storage.translation_memory import POSITIONS, TranslationMemory

SOURCES = ["5 6 7", "8 30 41", "", "9 10 11 12 13", "5 6 7"]


def numbers(generator, low, high):
    return " ".join(map(str, generator.integers(4, 60, generator.integers(low, high))))


@pytest.fixture(scope="module")
def memory():
    generator = np.random.default_rng(9)
    return TranslationMemory([(numbers(generator, 3, 9), numbers(generator, 3, 9)) for _ in range(80)])


def sources_of(model, texts):
    return [Source(text, tokens) for text, tokens in zip(texts, model.tokenizer.encode_sources(texts), strict=True)]


def entries_by_hand(model, memory, text, n):
    """(id, value, key) of every target token of the pairs that BM25 finds, one pair at a time."""
    search = sentence_search("bm25", model)
    search.fit([Source(source, ()) for source, _ in memory.texts])
    entries = []
    for number in search.nearest([Source(text, ())], n)[0]:
        if number >= 0:
            source, target = memory.texts[number]
            pair = TokenPair(model.tokenizer.encode_sources([source])[0], model.tokenizer.encode_targets([target])[0])
            for place, key in enumerate(model.keys([pair]).double().numpy()):
                entries.append((int(number) * POSITIONS + place, pair.target[place], key))
    return entries


class TestTranslationMemory:
    def test_entries_know_their_sentence(self, memory):
        sentences, positions = memory.locate([[0, 7, -1], [3 * POSITIONS + 2, 79 * POSITIONS, -1]])
        assert sentences.tolist() == [[0, 0, -1], [3, 79, -1]]
        assert positions.tolist() == [[0, 7, -1], [2, 0, -1]]


@pytest.mark.parametrize("combiner", ["distance", "fixed"])
@pytest.mark.parametrize("kind", ["marian", "m2m100", "gpt2"])
def test_every_step_is_the_mixture_over_the_found_pairs(kind, combiner, memory):
    """The real search of the model against the formula, with keys computed pair by pair."""
    model, texts, n = make_model(kind), [text for text in SOURCES if text], 5
    entries = [entries_by_hand(model, memory, text, n) for text in texts]
    typical = np.median([((a[2] - b[2]) ** 2).sum() for some in entries for a in some for b in some if a is not b])
    settings = SearchSettings(
        retriever="memory",
        combiner=combiner,
        subset_size=n,
        k=6,
        weight=0.7,
        temperature=float(typical) * (2 if combiner != "fixed" else 1),
    )
    steps = []

    class Recorder(KnnBatch):
        def changes(self, step):
            base, found = step.log_probs.clone(), super().changes(step)
            steps.append((step, base, found.apply(base.clone())))
            return found

    sources = sources_of(model, texts)
    hook = Recorder(MemoryRetriever.open(memory, model, settings), COMBINERS.get(combiner)(), settings, sources)
    model.generate([source.tokens for source in sources], DecodingSettings(beam_size=3, max_length=5), hook)
    assert len(steps) > 2
    adapted = 0
    for step, base, got in steps:
        for row, sentence in enumerate(step.sentences.tolist()):
            query = step.queries[row].double().numpy()
            distances = np.array([((key - query) ** 2).sum() for _, _, key in entries[sentence]])
            nearest = np.argsort(distances)[:6]
            kernel = np.exp(-(distances[nearest] - distances[nearest[0]]) / settings.temperature)
            p_knn = np.zeros(base.shape[1])
            np.add.at(p_knn, [entries[sentence][i][1] for i in nearest], kernel / kernel.sum())
            weight = 0.7
            if combiner == "distance":
                weight *= max(0.0, 1 - distances[nearest[0]] / settings.temperature)
            adapted += weight > 0
            wanted = weight * p_knn + (1 - weight) * base[row].double().exp().numpy()
            np.testing.assert_allclose(got[row].exp(), wanted, atol=1e-5)
    assert adapted > len(steps)


def test_rows_of_any_sentence_in_any_order(memory):
    model = make_model("marian")
    settings = SearchSettings(subset_size=3, k=200)
    retriever = MemoryRetriever.open(memory, model, settings)
    texts = ["5 6 7", "nothing of this is known", "30 31"]
    prepared = retriever.prepare([Source(text, ()) for text in texts], settings)
    rows = torch.tensor([2, 0, 1, 2, 2])
    queries = torch.randn(len(rows), model.dimension)
    got = retriever.retrieve(queries, rows, settings, prepared)
    for i, row in enumerate(rows.tolist()):
        entries = entries_by_hand(model, memory, texts[row], 3)
        wanted = sorted((((key - queries[i].numpy()) ** 2).sum(), entry, value) for entry, value, key in entries)
        found = len(wanted)
        assert bool(found) == (row != 1)
        assert got.ids[i].tolist() == [entry for _, entry, _ in wanted] + [-1] * (200 - found)
        assert got.values[i].tolist() == [value for _, _, value in wanted] + [0] * (200 - found)
        np.testing.assert_allclose(got.distances[i, :found], [distance for distance, _, _ in wanted], rtol=1e-4)
        assert got.distances[i, found:].isinf().all()


def test_a_batch_in_which_nothing_is_found(memory):
    model = make_model("marian")
    settings = SearchSettings(k=4)
    retriever = MemoryRetriever.open(memory, model, settings)
    prepared = retriever.prepare([Source("unknown", ()), Source("words", ())], settings)
    got = retriever.retrieve(torch.zeros(3, model.dimension), torch.tensor([0, 1, 1]), settings, prepared)
    assert not got.found.any()


def test_pairs_that_the_model_cannot_read_are_left_out():
    model = make_model("marian")
    long = " ".join(["5"] * (model.max_length + 1))
    memory = TranslationMemory([("5 6", "7"), ("5", long), (long, "8"), ("9", "10")])
    settings = SearchSettings(k=4)
    retriever = MemoryRetriever.open(memory, model, settings)
    prepared = retriever.prepare([Source("5", ())], settings)
    got = retriever.retrieve(torch.zeros(1, model.dimension), torch.tensor([0]), settings, prepared)
    assert sorted(got.ids[0].tolist()) == [-1, -1, 0, 1]
    assert sorted(got.values[0].tolist()) == [0, 0, END, 7]


def test_keys_are_kept_for_the_next_sentences(memory, monkeypatch):
    model = make_model("marian")
    settings = SearchSettings(subset_size=6)
    retriever = MemoryRetriever.open(memory, model, settings)
    computed = []
    keys = model.keys
    monkeypatch.setattr(model, "keys", lambda pairs: computed.extend(pairs) or keys(pairs))
    first = retriever.prepare(sources_of(model, ["5 6 7", "8 9", "5 6 7"]), settings)
    assert 6 <= len(computed) == len({(*pair.source, 0, *pair.target) for pair in computed}) <= 12
    before = len(computed)
    again = retriever.prepare(sources_of(model, ["8 9", "7 6 5"]), settings)
    assert len(computed) == before
    assert torch.equal(first.keys[1, : again.sizes[0]], again.keys[0, : again.sizes[0]])
    # A small cache drops what was used longest ago, and a batch that is larger than the cache still works.
    monkeypatch.setattr(memory_module, "CACHED_KEYS", 20)
    for text in ("5 6 7", "40 41 42", "8 9"):
        retriever.prepare(sources_of(model, [text]), settings)
        assert sum(len(pair.values) for pair in retriever._cache.values()) <= 20
    assert len(computed) > before


@pytest.fixture(scope="module")
def translator(memory, save_model):
    return Translator(translation_memory=memory, model=save_model(), max_length=12)


class TestTranslator:
    def test_it_is_ready_with_measured_settings(self, translator):
        search = translator.decoder.settings()
        assert (search.retriever, search.combiner, search.weight) == ("memory", "learned", 1.0)
        assert len(translator.translate(SOURCES)) == len(SOURCES)

    def test_given_settings_hold(self, memory, save_model, caplog):
        caplog.set_level("INFO", "knn_seq")
        given = Translator(translation_memory=memory, model=save_model(), k=3, weight=0.25)
        assert "training LearnedCombiner" in caplog.text
        caplog.clear()
        assert (given.decoder.settings().k, given.decoder.settings().weight) == (3, 0.25)
        given = Translator(translation_memory=memory, model=save_model(), temperature=7.0, combiner="fixed")
        assert not caplog.text
        assert given.decoder.settings() == SearchSettings("memory", "fixed", temperature=7.0)

    def test_a_weight_of_one_repeats_the_memory(self, translator, memory):
        texts = memory.texts[:20]
        options = {"combiner": "distance", "k": 1, "weight": 1.0, "temperature": 1.0, "beam_size": 1}
        got = translator.translate([s for s, _ in texts], **options)
        assert [str(text) for text in got] == [target for _, target in texts]

    @pytest.mark.parametrize("batch_size", [1, 2, 5])
    def test_the_batch_does_not_matter(self, translator, batch_size):
        options = {"combiner": "fixed", "weight": 0.9, "temperature": 50.0}
        wanted = translator.translate(SOURCES, **options)
        assert wanted != translator.translate(SOURCES, weight=0)
        assert translator.translate(SOURCES, batch_size=batch_size, **options) == wanted

    def test_an_explanation_names_the_pair(self, translator, memory):
        source, target = memory.texts[11]
        tokens = translator.model.tokenizer.encode_targets([target])[0]
        explanation = explain(translator, [Translation(target, source, tokens)])[0]
        nearest = [token.neighbours[0] for token in explanation.tokens]
        assert [(one.sentence, one.position) for one in nearest] == [(11, place) for place in range(len(tokens))]
        assert [translator.store.locate(one.entry)[0] for one in nearest] == [11] * len(tokens)
        assert explanation.sentences()[0][0] == 11
        assert all(token.weight > 0.9 for token in explanation.tokens)

    def test_a_memory_of_one_pair(self, save_model):
        one = Translator(translation_memory=TranslationMemory([("5 6 7", "8 9")]), model=save_model())
        assert one.decoder.settings() == SearchSettings("memory", "distance")
        assert one.translate(["5 6 7"], weight=1.0) == ["8 9"]
        assert len(one.translate(["10"])) == 1

    def test_half_precision(self, memory, save_model):
        half = Translator(translation_memory=memory, model=save_model(), dtype="bfloat16", max_length=12)
        assert len(half.translate(SOURCES)) == len(SOURCES)

    def test_an_ensemble(self, memory, save_model, translator):
        ensemble = [save_model()]
        twice = Translator(translation_memory=memory, model=save_model(), ensemble=ensemble, max_length=12)
        assert twice.translate(SOURCES) == translator.translate(SOURCES)

    def test_a_decoder_reads_its_prompt(self, memory, save_model):
        prompted = Translator(translation_memory=memory, model=save_model("gpt2"), prompt="{source} 4", max_length=8)
        assert prompted.model.settings.prompt == "{source} 4"
        assert prompted.translate(["5 6 7"])[0].tokens


def test_mistakes_are_one_sentence(memory, save_model, number_store, translator):
    model = save_model()
    cases = [
        ({}, "Give a datastore's folder or a translation memory"),
        ({"store": number_store, "translation_memory": memory, "model": model}, "not both"),
        ({"translation_memory": memory}, "which model it is for"),
        ({"translation_memory": "none.tsv", "model": model}, "There is no file none.tsv"),
        ({"translation_memory": memory, "model": model, "retriever": "full"}, "'full' needs a datastore"),
        ({"translation_memory": memory, "model": model, "colour": "red"}, "no setting 'colour'"),
        ({"store": number_store, "source_lang": "pt"}, "source_lang is for a translation memory"),
    ]
    for arguments, sentence in cases:
        with pytest.raises(KnnSeqError, match=sentence):
            Translator(**arguments)
    with pytest.raises(KnnSeqError, match="'subset' needs a datastore"):
        translator.translate(["5"], retriever="subset", combiner="fixed")
    with pytest.raises(KnnSeqError, match="reads a translation memory"):
        Translator(number_store).translate(["5"], retriever="memory")


def test_a_term_follows_the_memory():
    """The real model, and two pairs that call a thing by another name."""
    memory = TranslationMemory(
        [
            ("O gato está na caixa de correio.", "The cat is in the postbox."),
            ("A caixa de correio está cheia.", "The postbox is full."),
            ("O tempo está bom hoje.", "The weather is fine today."),
        ]
    )
    translator = Translator(translation_memory=memory, model="firefox:pt-en", temperature=200.0, weight=0.8, k=2)
    source = "A caixa de correio está vazia."
    (plain,) = translator.translate([source], weight=0)
    (adapted,) = translator.translate([source])
    assert "postbox" not in plain
    assert adapted == "The postbox is empty."
    assert explain(translator, [adapted])[0].sentences()[0][0] == 1

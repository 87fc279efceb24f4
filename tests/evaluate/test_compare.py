from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from knn_seq.errors import KnnSeqError
from knn_seq.evaluate import SystemSetup, bleu, chrf, compare
from knn_seq.metrics import Metric, Score
from knn_seq.retrieve import RETRIEVERS
from knn_seq.retrieve.full import FullRetriever
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.translator import Translator

K, TEMPERATURE, WEIGHT = 4, 30.0, 0.6
SYSTEMS = {
    "base": {"weight": 0.0},
    "copying": {"k": 1, "temperature": 1.0, "weight": 1.0},
    "mixed": {"k": K, "temperature": TEMPERATURE, "weight": WEIGHT},
}


@pytest.fixture(scope="module")
def translator(number_store):
    return Translator(number_store, beam_size=1, max_length=10, batch_size=8)


@pytest.fixture(scope="module")
def seen(number_corpus):
    """Sources and references that the datastore has seen."""
    pairs = [line.split("\t") for line in number_corpus.read_text().splitlines()[:30]]
    return [source for source, _ in pairs], [target for _, target in pairs]


@pytest.fixture(scope="module")
def comparison(translator, seen):
    return compare(translator, *seen, SYSTEMS)


def test_systems_are_translated_with_their_settings_and_scored(comparison, translator, seen):
    sources, references = seen
    assert [system.name for system in comparison.systems] == list(SYSTEMS)
    for system in comparison.systems:
        assert system.settings == SYSTEMS[system.name]
        assert system.translations == translator.translate(sources, **system.settings)
        assert system.scores["BLEU"].value == bleu(system.translations, references).value
        assert system.scores["chrF"].value == chrf(system.translations, references).value
    base, copying, _ = comparison.systems
    assert base.scores["chrF"].p_value is None
    assert copying.scores["chrF"].p_value < 0.01
    assert copying.scores["chrF"].value > base.scores["chrF"].value + 10


def test_shares_of_time_sum_to_1(comparison, translator):
    for system in comparison.systems:
        assert list(system.shares) == ["model", "search", "combination"]
        assert sum(system.shares.values()) == pytest.approx(1)
        assert all(0 <= share <= 1 for share in system.shares.values())
    base, *others = comparison.systems
    assert base.shares == {"model": 1, "search": 0, "combination": 0}
    for system in others:
        assert min(system.shares.values()) > 0
    assert translator.stopwatch is None


def test_changed_tokens_are_those_of_a_slow_loop(comparison, translator, number_store):
    base, _, mixed = comparison.systems
    assert (base.changed_tokens, base.changed) == ([], 0)
    network, keys = translator.model.network, number_store.keys.astype(np.float64)
    module, queries = network.get_submodule("model.decoder.layers.1.fc1"), []
    handle = module.register_forward_pre_hook(lambda module, inputs: queries.append(inputs[0].reshape(-1, 32)[-1]))
    expected = []
    for translation in mixed.translations:
        source, flags = translator.model.tokenizer.encode_sources([translation.source]), []
        for t, token in enumerate(translation.tokens):
            with torch.no_grad():
                prefix = torch.tensor([[1, *translation.tokens[:t]]])
                logits = network(input_ids=torch.tensor(source), decoder_input_ids=prefix, use_cache=False).logits
            model = torch.softmax(logits[0, -1].double(), dim=-1).numpy()
            distances = ((keys - queries[-1].double().numpy()) ** 2).sum(axis=1)
            mixture = (1 - WEIGHT) * model
            nearest = np.argsort(distances)[:K]
            shares = np.exp(-(distances[nearest] - distances[nearest[0]]) / TEMPERATURE)
            np.add.at(mixture, number_store.values.items[nearest], WEIGHT * shares / shares.sum())
            choice = int(model.argmax())
            flags.append(token != choice and bool(mixture[token] > mixture[choice]))
        expected.append(flags)
    handle.remove()
    assert mixed.changed_tokens == expected
    tokens = [flag for flags in expected for flag in flags]
    assert mixed.tokens == len(tokens)
    assert mixed.changed == sum(tokens) / len(tokens)
    assert 0.05 < mixed.changed < 0.95


def test_the_table_has_a_line_for_each_system(comparison):
    *lines, bleu_line, chrf_line = comparison.table().splitlines()
    heading = "system BLEU p chrF p tokens/s range x base model search combine changed stored repeated"
    assert " ".join(lines[0].split()) == heading
    assert bleu_line == f"BLEU: {comparison.signatures['BLEU']}"
    assert chrf_line == f"chrF: {comparison.signatures['chrF']}"
    assert len({len(line) for line in lines}) == 1
    assert max(map(len, lines)) <= 124  # a speed of six digits takes more
    base, copying, mixed = (line.split() for line in lines[1:])
    system = comparison.systems[0]
    assert base == [
        "base",
        f"{system.scores['BLEU'].value:.2f}",
        f"{system.scores['chrF'].value:.2f}",
        f"{system.tokens_per_second:,.0f}",
        system.speed_range,
        *("1.00", "100%", "0%", "0%", "0.0%", "0/30", "0"),
    ]
    assert len(copying) == len(mixed) == len(base) + 2
    assert copying[4] == "<0.001"
    assert re.fullmatch(r"<0\.001|[01]\.\d{3}", mixed[2])
    assert mixed[-3] == f"{comparison.systems[2].changed:.1%}"
    assert mixed[-2:] == [str(comparison.systems[2].stored), str(sum(comparison.systems[2].repetitions))]


def test_json_holds_figures_and_texts(comparison, number_store, seen):
    data = json.loads(json.dumps(comparison.to_dict()))
    sources, references = seen
    assert (data["sentences"], data["sources"], data["references"]) == (30, sources, references)
    assert list(data["signatures"]) == ["BLEU", "chrF"]
    assert "bs:1000|seed:12345" in data["signatures"]["BLEU"]
    base, copying, _ = data["systems"]
    assert base["p_values"] == {}
    assert copying["p_values"].keys() == {"bleu", "chrf"}
    for got, system in zip(data["systems"], comparison.systems, strict=True):
        assert got["bleu"] == pytest.approx(system.scores["BLEU"].value, abs=1e-4)
        assert got["chrf"] == pytest.approx(chrf(got["translations"], references).value, abs=1e-4)
        assert got["tokens"] == sum(len(translation.tokens) for translation in system.translations)
        assert got["tokens_per_second"] == pytest.approx(np.median(got["speeds"]), abs=0.1)
        assert got["speeds"] == pytest.approx(system.speeds, abs=0.1)
        assert got.get("datastore") == (str(number_store.path) if system.name != "base" else None)
        assert sum(got["shares"].values()) == pytest.approx(1, abs=1e-3)
        assert got["stored"] == {"reproduced": system.stored.reproduced, "sentences": 30}
        assert got["repeated"] == sum(system.repetitions)
        assert got["changed"] == pytest.approx(system.changed, abs=1e-4)
        assert (got["name"], got["settings"]) == (system.name, system.settings)


class Turns:
    """A translator that writes down who translates what, and how fast it pretends to be."""

    def __init__(self, translator, clock, speed):
        self.translator, self.clock, self.speed, self.calls = translator, clock, speed, []

    def __getattr__(self, name):
        return getattr(self.translator, name)

    def translate(self, sources, on_progress=None, **options):
        made = self.translator.translate(sources, on_progress, **options)
        self.calls.append(list(sources))
        self.clock.order.append(self)
        self.clock.seconds += sum(len(each.tokens) for each in made) / self.speed(len(self.calls))
        return made


class Clock:
    def __init__(self):
        self.seconds, self.order = 0.0, []


def test_systems_take_turns_and_each_piece_gives_a_speed(translator, seen, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", lambda: clock.seconds)
    steady, varying = Turns(translator, clock, lambda call: 100.0), Turns(translator, clock, lambda call: 10.0 * call)
    sources, references = [*seen[0], ""], [*seen[1], ""]
    setups = {
        "steady": SystemSetup(steady, {"weight": 0.0}),
        "varying": SystemSetup(varying, {"k": 1, "temperature": 1.0, "weight": 1.0}),
    }
    comparison = compare(translator, sources, references, setups, ("chrf",), stored=0)
    assert clock.order == [steady, varying] * 4  # the first to warm up
    for each in (steady, varying):
        pieces = each.calls[1:]
        assert sorted(source for piece in pieces for source in piece) == sorted(sources)
        assert {len(piece) for piece in pieces} == {10, 11}
        lengths = [np.mean([len(source) for source in piece if source]) for piece in pieces]
        assert max(lengths) < 1.2 * min(lengths)
    one, other = comparison.systems
    assert [translation.source for translation in other.translations] == sources
    assert (one.speeds, one.speed_range) == (pytest.approx([100.0] * 3), "100–100")
    assert (other.speeds, other.speed_range) == (pytest.approx([20.0, 30.0, 40.0]), "20–40")
    assert (one.tokens_per_second, other.tokens_per_second) == (pytest.approx(100.0), pytest.approx(30.0))
    assert other.translations == translator.translate(sources, k=1, temperature=1.0, weight=1.0)
    assert " 20–40 " in comparison.table()


@pytest.mark.parametrize(("sentences", "pieces"), [(1, 1), (2, 2), (7, 3), (30, 3), (40, 5), (90, 5)])
def test_nothing_is_translated_twice(translator, seen, sentences, pieces):
    sources, references = ((side * 3)[:sentences] for side in seen)
    [system] = compare(translator, sources, references, {"base": {"weight": 0.0, "max_length": 2}}, (), 0).systems
    assert len(system.speeds) == pieces
    assert len(system.translations) == sentences


def test_systems_that_search_different_things(translator, number_store, seen):
    memory = Translator(
        translation_memory=TranslationMemory(number_store.texts, "pairs"), model=translator.model, temperature=5.0
    )
    settings = {"k": 1, "weight": 1.0, "temperature": 1.0, "beam_size": 1, "max_length": 10}
    setups = {"base": {"weight": 0.0}, "store": settings, "memory": SystemSetup(memory, settings)}
    comparison = compare(translator, seen[0][:6], seen[1][:6], setups, ("chrf",))
    base, store, other = comparison.systems
    assert [each.translator for each in comparison.systems] == [translator, translator, memory]
    assert (base.searched, store.searched) == ({}, {"datastore": str(number_store.path)})
    assert other.searched == {"translation_memory": "pairs"}
    assert other.translations == memory.translate(seen[0][:6], **settings)
    assert other.scores["chrF"].value > base.scores["chrF"].value + 10
    assert other.to_dict()["translation_memory"] == "pairs"


class Words(Metric):
    """The number of words a sentence, in thousands; small, as COMET's scores are."""

    name = "Words"

    def scores(self, systems, references, sources):
        assert len(references) == len(sources)
        counts = {name: sum(len(text.split()) for text in texts) for name, texts in systems.items()}
        return {name: Score(count / len(references) / 1000, "words:v1") for name, count in counts.items()}


class Missing(Words):
    def require(self):
        raise KnnSeqError("The dictionary is missing.")


def test_any_metric_can_be_given(translator, seen):
    sources, references = seen[0][:5], seen[1][:5]
    comparison = compare(translator, sources, references, {"base": {"weight": 0.0}}, ("chrf", Words()))
    assert comparison.signatures.keys() == {"chrF", "Words"}
    [system] = comparison.systems
    assert f" {system.scores['Words'].value:.4f} " in comparison.table()
    assert comparison.to_dict()["systems"][0]["words"] == round(system.scores["Words"].value, 4)


def test_refusals_come_before_any_translation(translator, seen):
    sources, references = seen
    untranslatable = {"x": {"retriever": "nowhere"}}
    cases = [
        ("no retriever 'nowhere'", sources, references, untranslatable, ("bleu",)),
        ("no metric 'meteor'", sources, references, untranslatable, ("bleu", "meteor")),
        ("dictionary is missing", sources, references, untranslatable, ("bleu", Missing())),
        ("30 sentences, but 29 references", sources, references[1:], untranslatable, ("bleu",)),
        ("nothing to compare", [], [], untranslatable, ("bleu",)),
        ("nothing to compare", [" "], ["7"], untranslatable, ("bleu",)),
        ("nothing to compare", sources, references, {}, ("bleu",)),
    ]
    for sentence, *arguments in cases:
        with pytest.raises(KnnSeqError, match=sentence):
            compare(translator, *arguments)


def test_the_stopwatch_is_taken_away_also_after_an_error(number_store, seen):
    class Breaking(FullRetriever):
        prepared = 0

        def prepare(self, sources, size=None):
            self.prepared += 1
            if self.prepared == 3:
                raise RuntimeError("broken")

    RETRIEVERS.register("breaking")(Breaking)
    translator = Translator(number_store, beam_size=1, max_length=5, batch_size=8)
    with pytest.raises(RuntimeError, match="broken"):
        compare(translator, *seen, {"x": {"retriever": "breaking"}})
    assert translator.decoder.retriever(translator.settings({"retriever": "breaking"})[0]).prepared == 3
    assert translator.stopwatch is None
    del RETRIEVERS._classes["breaking"]

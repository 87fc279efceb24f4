"""Whether what is in the store comes out as it is there."""

from __future__ import annotations

import pytest

from knn_seq.errors import InvalidSetting
from knn_seq.evaluate import SystemSetup, compare
from knn_seq.evaluate.stored_targets import StoredTargets, reproduced, stored_sample, stored_targets
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.translator import Translator

COPYING = {"k": 1, "temperature": 1.0, "weight": 1.0}


@pytest.fixture(scope="module")
def translator(number_store):
    return Translator(number_store, beam_size=1, max_length=12)


def test_the_sample_is_seeded_and_has_no_source_twice():
    texts = [(f"{number % 7}", str(number)) for number in range(50)] + [(" ", "x")]
    sample = stored_sample(texts, 5, seed=3)
    assert sample == stored_sample(texts, 5, seed=3) != stored_sample(texts, 5, seed=4)
    assert len(set(sample)) == len(sample) == 5
    assert set(stored_sample(texts, 30)) == {str(number) for number in range(7)}
    assert stored_sample(texts, 0) == []


def test_all_targets_of_a_source_are_found(number_store):
    slow = {}
    for number in range(len(number_store.texts)):
        source, target = number_store.texts[number]
        slow.setdefault(source, set()).add(target)
    sources = stored_sample(number_store.texts, 40)
    assert stored_targets(number_store.texts, sources) == {source: slow[source] for source in sources}
    several = [("5", "6"), ("7", "8"), ("5", "9"), ("5", "6")]
    assert stored_targets(several, ["5"]) == {"5": {"6", "9"}}


def test_any_of_several_targets_counts(translator):
    [output] = translator.translate(["5 6 7"], **COPYING)
    for targets, count in [({output.text}, 1), ({"4", output.text}, 1), ({"4"}, 0)]:
        assert reproduced(translator, COPYING, {"5 6 7": targets}) == StoredTargets(count, 1)
    # As the model can write it: this tokenizer knows no two spaces.
    assert reproduced(translator, COPYING, {"5 6 7": {output.text.replace(" ", "  ")}}).reproduced == 1


def test_systems_say_how_much_of_their_store_they_give_back(translator, number_store):
    memory = Translator(
        translation_memory=TranslationMemory([("5 6 7 8", "9 10 11"), ("12 13 14", "15 16")], "pairs"),
        model=translator.model,
        temperature=5.0,
    )
    settings = {**COPYING, "beam_size": 1, "max_length": 12}
    systems = {"base": {"weight": 0.0}, "copying": COPYING, "memory": SystemSetup(memory, settings)}
    comparison = compare(translator, ["5 6"], ["7"], systems, ("chrf",), stored=20, seed=1)
    sample = stored_sample(number_store.texts, 20, 1)
    base, copying, other = comparison.systems
    for system in (base, copying):
        outputs = translator.translate(sample, **system.settings)
        wanted = stored_targets(number_store.texts, sample)
        assert system.stored.reproduced == sum(text in wanted[text.source] for text in outputs)
        assert system.stored.sentences == 20
    assert base.stored.reproduced < 4
    assert copying.stored.share > 0.8
    assert other.stored == StoredTargets(2, 2)
    assert comparison.to_dict()["systems"][2]["stored"] == {"reproduced": 2, "sentences": 2}


def test_it_can_be_left_out(translator):
    comparison = compare(translator, ["5 6"], ["7"], {"base": {"weight": 0.0}}, ("chrf",), stored=0)
    assert comparison.systems[0].stored is None
    assert "stored" not in comparison.table()
    assert comparison.to_dict()["systems"][0]["stored"] is None
    with pytest.raises(InvalidSetting, match="at least 0, not -1"):
        compare(translator, ["5 6"], ["7"], {"base": {"weight": 0.0}}, stored=-1)

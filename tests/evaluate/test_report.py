"""The report as a file: what it says, and that nothing in it comes alive."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from importlib.resources import files

import pytest
from page_reader import PageReader
from tunings import EVIL, TUNING

from knn_seq.datastore import Datastore
from knn_seq.evaluate import Comparison, SystemSetup, compare
from knn_seq.evaluate.plots import PALETTE
from knn_seq.evaluate.report import write_report
from knn_seq.evaluate.report.examples import most_helped, most_hurt
from knn_seq.evaluate.report.page import best_system, main_result
from knn_seq.explain import changed_tokens
from knn_seq.metrics import Score
from knn_seq.metrics.chrf import sentence_chrf
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.translator import Translator


@pytest.fixture(scope="module")
def page(number_comparison, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, number_comparison, "Numbers")
    assert os.listdir(path.parent) == ["report.html"]
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reader(page):
    return PageReader(page)


def test_the_page_stands_alone(page, reader):
    assert page.startswith("<!DOCTYPE html>")
    assert all(address.startswith("#") for address in reader.addresses)
    assert not re.findall(r"(?:url\(|@import\s*)(?!#)", page)
    assert "default-src 'none'" in page


def test_ids_are_unique_and_found(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'aria-describedby="([^"]+)"', page)) <= set(ids)


def test_the_table_has_every_system(number_comparison, reader):
    rows = reader.texts("th")
    for system in number_comparison.systems:
        assert system.name in rows
    cells = " ".join(reader.texts("td", "number"))
    for system in number_comparison.systems:
        assert f"{system.tokens_per_second:,.0f}" in cells
        assert system.speed_range in cells
        for score in system.scores.values():
            assert f"{score.value:.1f}" in cells
        assert f" {system.stored} {sum(system.repetitions)} " in f"{cells} "
    assert {"Stored", "Repeated"} <= set(rows)


def test_without_stored_sources_there_is_no_such_column(number_comparison, tmp_path):
    systems = [replace(system, stored=None) for system in number_comparison.systems]
    write_report(tmp_path / "report.html", replace(number_comparison, systems=systems), "Numbers")
    assert "Stored" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_combiner_with_its_own_temperature_is_shown_without_one(number_store, number_comparison, tmp_path):
    """Among the settings that were tuned, and among those to do it again."""
    store = Datastore(shutil.copytree(number_store.path, tmp_path / "store"))
    translator = Translator(store, model=number_comparison.systems[0].translator.model, beam_size=1, max_length=8)
    translator.train(k=4, sentences=20, general=[])
    surface = {**TUNING["surface"], "temperature": [100.0], "log_likelihood": [[[-2.5, -1.5]]] * 2}
    tuning = {**TUNING, "combiner": "learned", "surface": surface, "chosen": {**TUNING["chosen"], "temperature": 100.0}}
    (store.path / "tuning.json").write_text(json.dumps({"full/learned": tuning}))
    systems = {"base": {"weight": 0.0}, "learned": {"combiner": "learned"}}
    compared = compare(translator, number_comparison.sources[:4], number_comparison.references[:4], systems, stored=2)
    write_report(tmp_path / "report.html", compared, "Numbers")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "temperature" not in page.replace("sampling_temperature", "").lower()
    recipe = json.loads(PageReader(page).texts("pre")[0])
    assert recipe["systems"]["learned"]["combiner"] == "learned"


def test_helped_and_hurt_are_the_right_sentences(number_comparison, reader):
    best = best_system(number_comparison)
    base, *_ = number_comparison.systems
    before = sentence_chrf(base.translations, number_comparison.references)
    after = sentence_chrf(best.translations, number_comparison.references)
    gains = sorted((b - a for a, b in zip(before, after, strict=True)), reverse=True)
    wanted = [gain for gain in gains[:5] if gain > 0] + [gain for gain in gains[::-1][:5] if gain < 0]
    assert len(wanted) >= 5
    shown = [float(text.split()[0].replace("−", "-")) for text in reader.texts("p", "gain")]
    assert shown == pytest.approx(wanted, abs=0.051)


def test_words_shown_are_the_translations_and_the_right_ones_are_marked(number_translator, number_comparison, reader):
    best = best_system(number_comparison)
    assert best.name == "strong"
    marked = reader.texts("dd", "marked")
    by_text = {translation.text: translation for translation in best.translations}
    assert marked
    assert set(marked) <= set(by_text)
    # Numbers are words of one token, so a word's flag is its token's.
    flags = [
        changed_tokens(number_translator, [by_text[text]], **best.settings)[0][: len(text.split())] for text in marked
    ]
    wanted = [
        word for text, of_text in zip(marked, flags, strict=True) for word, flag in zip(text.split(), of_text) if flag
    ]
    legend = "the neighbours"
    assert [text for text in reader.texts("span", "word", "changed") if text != legend] == wanted
    assert 0 < len(wanted) < sum(map(len, flags)), "both the model and the neighbours must have decided words"


def test_evidence_of_a_word(number_store, reader):
    cards = reader.texts("div", "card")
    words = [text for text in reader.texts("span", "word") if text not in ("the model", "the neighbours")]
    assert len(cards) == len(words) > 0
    for card, word in zip(cards, words, strict=True):
        assert card.split()[0] == word
        assert re.search(r"λ 0\.\d\d: nearest at [\d.]+ \([\d.]+ of the usual distance\), \d+% agree", card), card
    targets = {target for _, target in number_store.texts}
    assert reader.texts("span", "target")
    assert set(reader.texts("span", "target")) <= targets
    assert set(reader.texts("span", "source")) <= {source for source, _ in number_store.texts}
    assert max(map(len, (re.findall(r"\d+\s%", card) for card in cards))) <= 3


def test_the_word_of_a_neighbour_is_marked_in_its_sentence(number_store, page):
    for before, word, after in re.findall(r'class="target" dir="auto">([^<]*)<mark>([^<]*)</mark>([^<]*)<', page):
        assert word == "" or word in (before + word + after).split()
        assert not before or before.endswith(" ") or word == ""


def test_settings_and_versions_to_do_it_again(number_comparison, number_store, reader):
    recipe = json.loads(reader.texts("pre")[0])
    assert "datastore" not in recipe["systems"]["base"]
    assert recipe["systems"]["strong"]["datastore"] == str(number_store.path)
    assert recipe["systems"]["strong"]["temperature"] == 5.0
    assert recipe["systems"]["strong"]["beam_size"] == 1
    assert recipe["systems"]["base"]["weight"] == 0
    assert set(recipe["versions"]) >= {"knn-seq", "torch", "transformers", "faiss-cpu"}
    assert recipe["signatures"] == number_comparison.signatures


def test_helped_and_hurt():
    gains = [0.0, 5.0, -1.0, 9.0, -7.0, 0.0, 5.0]
    assert most_helped(gains, 5) == [3, 1, 6]
    assert most_helped(gains, 2) == [3, 1]
    assert most_hurt(gains, 5) == [4, 2]
    assert most_hurt([1.0, 0.0], 5) == []


def with_scores(comparison, *scores):
    systems = [
        replace(system, scores={"BLEU": score}, speeds=[speed])
        for system, score, speed in zip(comparison.systems, scores, (300.0, 200.0, 100.0))
    ]
    return Comparison(systems, comparison.sources, comparison.references)


@pytest.mark.parametrize(
    ("score", "sentence"),
    [
        (Score(34.84, "", 0.0004), "Neighbours bring +4.8 BLEU (p < 0.001) at "),
        (Score(30.2, "", 0.34), "Neighbours bring +0.2 BLEU (p = 0.340), which may be chance, at "),
        (Score(29.0, "", 0.01), "Neighbours cost 1.0 BLEU (p = 0.010) at "),
    ],
)
def test_the_main_result_in_words(number_comparison, score, sentence):
    compared = with_scores(number_comparison, Score(30.0, ""), score)
    best = best_system(compared)
    result = main_result(compared, best).replace("\N{NO-BREAK SPACE}", " ")
    assert result.startswith(sentence)
    assert " at 0.67 of the model’s speed; " in result
    assert result.endswith(f"{100 * best.changed:.0f} % of the tokens changed.")


def test_the_main_result_is_the_best_systems(number_comparison):
    compared = with_scores(number_comparison, Score(30.0, ""), Score(31.0, "", 0.01), Score(33.0, "", 0.01))
    best = best_system(compared)
    assert best.name == "weak"
    assert main_result(compared, best).startswith("Neighbours (weak) bring +3.0")


def test_the_model_alone(number_comparison, tmp_path):
    alone = Comparison(number_comparison.systems[:1], number_comparison.sources, number_comparison.references)
    write_report(tmp_path / "report.html", alone, "Alone")
    reader = PageReader((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "base reaches" in reader.texts("p", "result")[0]
    assert not reader.texts("dd", "marked")


def test_a_translation_memory(number_store, number_corpus, tmp_path):
    memory = TranslationMemory.open(number_corpus)
    translator = Translator(
        translation_memory=memory, model=number_store.model_settings.name, beam_size=1, max_length=12, temperature=5.0
    )
    sources, references = zip(*memory.texts[:6], strict=True)
    compared = compare(translator, sources, references, {"base": {"weight": 0.0}, "memory": {"weight": 0.8}})
    write_report(tmp_path / "report.html", compared, "Memory")
    reader = PageReader((tmp_path / "report.html").read_text(encoding="utf-8"))
    facts = " ".join(reader.texts("dl", "facts"))
    assert f"Translation memory{number_corpus.name}: 120 sentence pairs, searched as they are" in facts


def test_nothing_that_comes_from_text_comes_alive(number_store, number_corpus, tmp_path):
    corpus = tmp_path / "evil.tsv"
    options = {"index_recipe": "Flat", "combiner": "fixed", "allow_unknown": True}
    corpus.write_text("".join(f"{EVIL} {line.rstrip()} {EVIL}\n" for line in number_corpus.open()))
    store = Datastore.build(tmp_path / "store", number_store.model_settings.name, corpus, **options)
    translator = Translator(store, beam_size=1, max_length=12)
    sources, references = zip(*(store.texts[i] for i in range(12)), strict=True)
    systems = {"base": {"weight": 0.0}, f'"{EVIL}': {"weight": 0.9, "k": 4, "temperature": 5.0}}
    compared = compare(translator, sources, references, systems)
    write_report(tmp_path / "report.html", compared, f"</title>{EVIL}")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert EVIL not in page
    assert page.count("<script>") == page.count("</script>") == 1
    reader = PageReader(page)
    assert reader.texts("h1") == [f"</title>{EVIL}"]
    assert any(EVIL in text for text in reader.texts("span", "source"))
    assert any(EVIL in text for text in reader.texts("dd"))
    assert any(EVIL in text for text in reader.texts("th"))


def searching(comparison, store):
    """The comparison as if its systems had searched this datastore."""
    translator = Translator(store, beam_size=1, max_length=12)
    systems = [replace(system, translator=translator) for system in comparison.systems]
    return Comparison(systems, comparison.sources, comparison.references)


@pytest.fixture
def tuned(number_store, tmp_path):
    """A copy of the datastore; give it a tuning.json."""
    shutil.copytree(number_store.path, tmp_path / "tuned")
    return tmp_path / "tuned"


def test_the_surface_of_a_tuned_datastore(tuned, number_comparison, tmp_path):
    (tuned / "tuning.json").write_text(json.dumps({"full/fixed": TUNING}))
    write_report(tmp_path / "r.html", searching(number_comparison, tuned), "Tuned")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    reader = PageReader(page)
    assert reader.texts("figure", "wide")
    note = " ".join(" ".join(reader.texts("p", "note")).split())
    assert f"k 4, temperature 10, weight 0.25, from 1,234 tokens of {EVIL} dev.tsv (2026-11-01)" in note
    assert "31.37" in reader.texts("td", "number")
    assert EVIL not in page


def test_systems_that_search_different_things(tuned, number_translator, number_comparison, tmp_path):
    """The page names all of them, shows how each was tuned, and explains with the best system's own."""
    (tuned / "tuning.json").write_text(json.dumps({"full/fixed": TUNING}))
    pairs = [(f"{source}   ", target) for source, target in number_translator.store.texts]
    memory = Translator(
        translation_memory=TranslationMemory(pairs, "pairs"), model=number_translator.model, temperature=5.0
    )
    base, *_ = number_comparison.systems
    sources, references = list(number_comparison.sources)[:8], list(number_comparison.references)[:8]
    settings = {"weight": 0.9, "k": 4, "temperature": 5.0, "beam_size": 1, "max_length": 12}
    law = Translator(tuned, model=number_translator.model)
    setups = {
        "base": base.settings,
        "law": SystemSetup(law, {**settings, "weight": 0.01}),
        "memory": SystemSetup(memory, settings),
    }
    compared = compare(number_translator, sources, references, setups)
    assert best_system(compared).name == "memory"
    write_report(tmp_path / "r.html", compared, "Several")
    reader = PageReader((tmp_path / "r.html").read_text(encoding="utf-8"))
    facts = " ".join(reader.texts("dl", "facts"))
    names = (number_translator.store.path.name, "tuned", "pairs")
    assert all(f"{name}: " in facts for name in names)
    assert "tuned: full search, fixed combiner" in reader.texts("figcaption")
    shown = reader.texts("span", "source")
    assert shown
    assert all(source.endswith("   ") for source in shown)
    recipe = json.loads(reader.texts("pre")[0])["systems"]
    assert (recipe["law"]["datastore"], recipe["memory"]["translation_memory"]) == (str(tuned), "pairs")
    assert {"tuned", "pairs"} <= set(reader.texts("td"))


def test_a_damaged_tuning_does_not_cost_the_report(tuned, number_comparison, tmp_path):
    (tuned / "tuning.json").write_text("{")
    write_report(tmp_path / "r.html", searching(number_comparison, tuned), "Tuned")
    assert not PageReader((tmp_path / "r.html").read_text(encoding="utf-8")).texts("figure", "wide")


def test_a_report_is_replaced_in_one_step(number_comparison, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    kept = path.open()
    write_report(path, number_comparison, "New")
    assert kept.read() == "old"
    assert "New" in path.read_text(encoding="utf-8")


def test_the_style_sheet_knows_the_colours_of_the_figures():
    style = (files("knn_seq.evaluate") / "report" / "style.css").read_text()
    day, night = style.split("prefers-color-scheme: dark")
    for name, colour in PALETTE.items():
        assert f"--{name}: {colour};" in day
        assert f"--{name}: " in night

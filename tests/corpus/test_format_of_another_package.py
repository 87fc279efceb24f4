"""A format that is not made of lines, as another package would define it: one class, with an option of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np
import pytest
from tiny_models import number_line

from knn_seq import Datastore
from knn_seq.build import text as text_step
from knn_seq.corpus import CORPUS_FORMATS, BadPair, CorpusReader, SentencePair, make_pair, open_corpus
from knn_seq.corpus.files import open_bytes
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.registry import Option


class UnitsReader(CorpusReader):
    suffixes = (".units",)
    options = {"source_lang": Option("pt", "the language to translate from", str)}
    started: list[int] = []

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        self.started.append(start)
        number = 0
        with open_bytes(self.paths[0]) as file:
            for _, element in ElementTree.iterparse(file):
                if element.tag == "unit":
                    number += 1
                    if number > start:
                        yield self._pair(number, element)
                    element.clear()

    def _pair(self, number: int, element: ElementTree.Element) -> SentencePair | BadPair:
        place = f"unit {number} (tuid {element.get('id')})"
        sides = {side.get("lang"): side.text or "" for side in element}
        source = sides.pop(self.option_values["source_lang"], None)
        if source is None or not sides:
            return BadPair(place, "missing language")
        return make_pair(source, sides.popitem()[1], place, element.get("id"))


@pytest.fixture(autouse=True)
def units(monkeypatch):
    monkeypatch.setitem(CORPUS_FORMATS._classes, "units", UnitsReader)
    monkeypatch.setattr(UnitsReader, "started", [])


def write_units(path, pairs):
    rows = (
        f'<unit id="{4710 + number}"><side lang="pt">{source}</side><side\n lang="en">{target}</side></unit>'
        for number, (source, target) in enumerate(pairs, 1)
    )
    path.write_text(f"<units>{''.join(rows)}<unit id='x'><side lang='pt'>só</side></unit></units>")
    return path


@pytest.fixture
def pairs():
    generator = np.random.default_rng(8)
    return [tuple(number_line(generator).rstrip().split("\t")) for _ in range(60)]


def test_units_have_places_and_ids(tmp_path):
    path = write_units(tmp_path / "a.units", [("um", "one"), ("", "two")])
    corpus = open_corpus(path)
    expected = [
        SentencePair("um", "one", "unit 1 (tuid 4711)", id="4711", corpus=str(path)),
        BadPair("unit 2 (tuid 4712)", "empty side"),
        BadPair("unit 3 (tuid x)", "missing language"),
    ]
    assert list(corpus) == expected
    assert list(corpus.pairs(1)) == expected[1:]


def test_an_option_of_its_own(tmp_path):
    path = write_units(tmp_path / "a.xml", [("um", "one")])
    corpus = open_corpus(path, format="units", options={"source_lang": "en"})
    assert next(corpus.pairs())[:2] == ("one", "um")
    assert corpus.identity() != open_corpus(path, format="units").identity()
    with pytest.raises(InvalidSetting, match="UnitsReader has no option 'lang': it has source_lang"):
        open_corpus(path, format="units", options={"lang": "en"})


def test_a_build_resumes_in_the_middle(pairs, save_model, tmp_path, monkeypatch):
    path = write_units(tmp_path / "a.units", pairs)
    arguments = {"index_recipe": "Flat", "calibration_sentences": 0, "checkpoint_seconds": 0.0, "workers": 1}
    monkeypatch.setattr("knn_seq.build.tokens.UNITS_PER_CHUNK", 7)
    complete = Datastore.build(tmp_path / "complete", save_model(), path, **arguments)
    assert complete.texts[59] == pairs[59]
    assert complete.manifest.counts.rejected == {"missing language": 1}

    chunks = iter(range(3))
    append = text_step._append

    def interrupted(*given):
        if next(chunks, None) is None:
            raise KeyboardInterrupt
        append(*given)

    with monkeypatch.context() as patch:
        patch.setattr(text_step, "_append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Datastore.build(tmp_path / "store", save_model(), path, **arguments)
    resumed = Datastore.build(tmp_path / "store", save_model(), path, **arguments)
    assert UnitsReader.started == [0, 0, 21]
    assert list(resumed.texts) == list(complete.texts)
    for one, two in ((resumed.values, complete.values), (resumed.sources, complete.sources)):
        np.testing.assert_array_equal(one.items, two.items)
        np.testing.assert_array_equal(one.offsets, two.offsets)
    np.testing.assert_array_equal(resumed.keys, complete.keys)
    assert resumed.manifest.counts == complete.manifest.counts


def test_the_command_line_passes_format_and_options(pairs, save_model, knn_seq, tmp_path):
    path = write_units(tmp_path / "a.xml", pairs)
    build = ("build", tmp_path / "store", "--model", save_model(), "--corpus", path, "-q", "--index-recipe", "Flat")
    code, _, error = knn_seq(*build)
    assert (code, "a.xml does not tell its format" in error) == (2, True)
    code, _, error = knn_seq(*build, "--format", "units", "--corpus-option", "source_lang=en")
    assert code == 0, error
    store = Datastore(tmp_path / "store")
    assert store.texts[3] == pairs[3][::-1]
    assert store.manifest.corpus.identity["options"] == {"source_lang": "en"}


def test_other_commands_pass_format_and_options(pairs, number_store, save_model, knn_seq, tmp_path):
    path = write_units(tmp_path / "a.xml", pairs)
    (tmp_path / "in.txt").write_text(f"{pairs[0][1]}\n")
    memory = ("--translation-memory", path, "--model", save_model(), "--input", tmp_path / "in.txt", "-q")
    reader = ("--translation-memory-format", "units", "--translation-memory-option", "source_lang=en")
    copying = ("-k", 1, "--weight", 1, "--temperature", 1, "--beam-size", 1, "--subset-size", 1, "--max-length", 20)
    code, out, error = knn_seq("translate", *memory, *reader, *copying)
    assert (code, out) == (0, f"{pairs[0][0]}\n"), error
    code, _, error = knn_seq("translate", number_store.path, *reader[2:])
    assert (code, "--translation-memory-option is for a translation memory" in error) == (2, True)

    test = ("--test", path, "--format", "units", "--corpus-option", "source_lang=en", "--max-length", 9, "-q")
    report = tmp_path / "report.json"
    code, _, error = knn_seq("evaluate", number_store.path, *test, "--beam-size", 1, "--json", report)
    assert code == 0, error
    assert json.loads(report.read_text())["test"] == "a.xml"


def test_strict_names_the_place(pairs, save_model, tmp_path):
    path = write_units(tmp_path / "a.units", pairs)
    with pytest.raises(
        DamagedFile, match=r"a\.units, unit 61 \(tuid x\): no usable sentence pair \(missing language\)"
    ):
        Datastore.build(tmp_path / "store", save_model(), path, strict=True)

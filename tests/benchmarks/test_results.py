from __future__ import annotations

import json
from argparse import Namespace

import domains
import pytest
import results
from domains import STEPS, Domain, ParallelText, domain_of
from harm import STORED
from harm import table as harm_table
from kept import Kept
from results import Measuring, bytes_of
from results_tables import quality, section

from knn_seq import KnnSeqError
from knn_seq.corpus import SentencePair, open_corpus
from knn_seq.metrics import METRICS
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings


def test_a_figure_is_made_once_and_kept(tmp_path):
    path = tmp_path / "results.json"
    assert Kept(path).get(("it", "seconds", "keys"), lambda: 3) == 3
    assert Kept(path).get(("it", "seconds", "keys"), lambda: 4) == 3
    Kept(path).add(("it", "seconds", "keys"), 2)
    Kept(path).add(("it", "seconds", "text"), 1)
    assert json.loads(path.read_text()) == {"it": {"seconds": {"keys": 5, "text": 1}}}


def test_figures_of_another_text_are_refused(tmp_path):
    kept = Kept(tmp_path / "results.json")
    kept.require_same(("it", "run"), {"text": "a"})
    kept.require_same(("it", "run"), {"text": "a"})
    with pytest.raises(KnnSeqError, match="choose another --folder"):
        kept.require_same(("it", "run"), {"text": "b"})


def test_scores_are_shown_with_difference_and_significance():
    figures = {
        "scores": {
            "BLEU": {
                "base": {"value": 30.0, "p_value": None},
                "full": {"value": 35.5, "p_value": 0.0002},
                "subset": {"value": 29.5, "p_value": 0.25},
            }
        },
        "speeds": {"base": [100, 200, 300], "full": [50, 150, 150], "subset": [100, 200, 300]},
    }
    _, base, full, subset = quality(figures)
    assert base == ["base", "30.00", "200", ""]
    assert full[1:] == ["35.50 (+5.50, p <0.001)", "150", "0.50 (0.50 to 0.75)"]
    assert subset[1] == "29.50 (-0.50, p = 0.250)"


def test_bytes_of_folders_and_of_nothing(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one").write_bytes(b"123")
    (tmp_path / "two").write_bytes(b"12")
    assert (bytes_of(tmp_path), bytes_of(tmp_path / "two"), bytes_of(tmp_path / "none")) == (5, 2, 0)


def test_what_harms_is_marked_and_counted():
    sets = [ParallelText("bible", ["a"], ["b"]), ParallelText("it", ["c"], ["d"])]
    own = {
        "fixed": {"bible": 35.0, "it": 20.0},
        "learned": {"bible": 36.0, "it": 28.9},
        "stored": {system: f"{number} of 9" for number, system in enumerate(STORED)},
    }
    text = harm_table(["bible"], sets, {"base": {"bible": 30.0, "it": 30.0}, "bible": own})
    assert "| bible | `fixed` | 35.0 (+5.0) | 20.0 (**-10.0**) |" in text
    assert "| bible | `learned` | 36.0 (+6.0) | 28.9 (**-1.1**) |" in text
    assert "below the model alone: 1." in text
    assert "| bible | 0 of 9 | 1 of 9 | 2 of 9 | 3 of 9 |" in text


def test_a_text_that_is_not_there_is_named(tmp_path):
    arguments = Namespace(text_folder=tmp_path, folder=tmp_path, quick=True)
    with pytest.raises(KnnSeqError, match=r"office-help.pt-en.tsv.gz: make it with benchmarks/office_help_text.py"):
        domain_of("office-help", arguments, None)


@pytest.fixture(scope="module")
def number_pairs(number_corpus):
    return [line for line in open_corpus(number_corpus) if isinstance(line, SentencePair)]


def test_no_part_has_a_sentence_that_is_nearly_one_of_another(tmp_path):
    pairs = [SentencePair(f"{word} {other} um texto longo de {i}", f"{i}", "") for i, (word, other) in enumerate(WORDS)]
    domain = Domain.split("d", pairs, tmp_path, None, (60, 10, 10))
    assert domain.near_duplicates > 0
    stems = [{source.rpartition(" ")[0] for source in part} for part in parts_of(domain)]
    assert sum(map(len, stems)) == len(set().union(*stems))


WORDS = [(chr(97 + i % 26) * 3, chr(97 + i // 26) * 2) for i in range(100)] * 2  # each comes twice, with another number


def parts_of(domain):
    return [pair.source for pair in domain.train], domain.dev.sources, domain.test.sources


@pytest.fixture(scope="module")
def measure(tmp_path_factory, save_model, number_pairs):
    """Measure a domain of numbers, every time in the same folder; returns the figures."""
    folder = tmp_path_factory.mktemp("results")
    model = load_model(ModelSettings(save_model()))

    def run():
        kept = Kept(folder / "results.json")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(results, "PAPER_RECIPE", "IVF4,PQ4x4")  # the corpus is too small for the paper's own
            patch.setattr(results, "OPQ_RECIPE", "OPQ4,IVF4,PQ4x4")
            patch.setattr(domains, "SPARE", 1)
            domain = Domain.split("it", number_pairs, folder / "it", model, (1000, 6, 8))
            domain.translator.decoding = domain.translator.decoding.__class__(beam_size=1, max_length=8)
            Measuring(domain, model, kept).measure({name: METRICS.get(name.lower())() for name in ("BLEU", "chrF")})
        return json.loads((folder / "results.json").read_text())

    return run


def test_every_system_is_measured(measure):
    figures = measure()
    assert sum(figures["store"]["sentences"].values()) + figures["store"]["near_duplicates"] == 120
    systems = list(figures["scores"]["BLEU"])
    assert systems[0] == "base"
    assert len(systems) == 12
    assert list(figures["speeds"]) == systems
    assert all(len(pieces) == 4 for pieces in figures["speeds"].values())
    assert figures["made"]["tuned"].keys() == {"default", "paper"}
    assert {*STEPS.values(), "subsets", "memory"} <= figures["made"]["cpu_seconds"].keys()
    assert all(size > 0 for size in figures["store"]["bytes"].values())


def test_what_was_measured_is_not_measured_again(measure):
    first, again = measure(), measure()
    assert [again[part] for part in ("pieces", "scores")] == [first[part] for part in ("pieces", "scores")]


def test_a_section_names_every_system_and_part(measure):
    figures = measure()
    text = section(figures)
    for name in (*figures["speeds"], *STEPS.values(), "subsets", "index IVF4,PQ4x4"):
        assert f"| {name} |" in text

from __future__ import annotations

import json

import pytest
import results
from results import Amounts, Domain, Kept, bytes_of
from results_tables import STEPS, quality, section

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
        "tokens_per_second": {"base": [100, 200, 300], "full": [50, 150, 150], "subset": [100, 200, 300]},
        "systems": {
            name: {"shares": {"model": 0.5, "search": 0.3, "combination": 0.2}, "changed": 0.25}
            for name in ("base", "full", "subset")
        },
    }
    _, base, full, subset = quality(figures)
    assert base[:4] == ["base", "30.00", "200", ""]
    assert full[1:] == ["35.50 (+5.50, p <0.001)", "150", "0.50 (0.50 to 0.75)", "50% / 30% / 20%", "25.0%"]
    assert subset[1] == "29.50 (-0.50, p = 0.250)"


def test_bytes_of_folders_and_of_nothing(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one").write_bytes(b"123")
    (tmp_path / "two").write_bytes(b"12")
    assert (bytes_of(tmp_path), bytes_of(tmp_path / "two"), bytes_of(tmp_path / "none")) == (5, 2, 0)


@pytest.fixture(scope="module")
def measure(tmp_path_factory, save_model, number_corpus):
    """Measure a domain of numbers, every time in the same folder; returns the figures."""
    folder = tmp_path_factory.mktemp("results")
    pairs = [line for line in open_corpus(number_corpus) if isinstance(line, SentencePair)]
    model = load_model(ModelSettings(save_model()))
    amounts = Amounts(dev=6, test=8, timed=4, rounds=2, confirmed=1)

    def run():
        kept = Kept(folder / "results.json")
        kept.put(("it", "run"), {"beam_size": 1})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(results, "PAPER_RECIPE", "IVF4,PQ4x4")  # the corpus is too small for the paper's own
            domain = Domain("it", pairs, folder / "it", model, amounts, 1, kept)
            domain.decoding["max_length"] = 8  # random weights never come to an end
            domain.measure({name: METRICS.get(name.lower())() for name in ("BLEU", "chrF")})
        return json.loads((folder / "results.json").read_text())["it"]

    return run


def test_every_system_is_measured(measure):
    figures = measure()
    assert figures["sentence_pairs"] == {"train": 106, "dev": 6, "test": 8}
    systems = list(results.SYSTEMS)
    assert list(figures["systems"]) == list(figures["scores"]["BLEU"]) == list(figures["tokens_per_second"]) == systems
    assert figures["systems"]["base"]["changed"] == 0
    assert {name: chosen["retriever"] for name, chosen in figures["tuned"].items()} == {
        "full, the paper's index": "full",
        "full": "full",
        "subset": "subset",
        "memory": "memory",
    }
    assert figures["tuned"]["full, the paper's index"]["index"] == "paper"
    assert all(len(rounds) == 2 for rounds in figures["tokens_per_second"].values())
    assert {*STEPS.values(), "the paper's index", "subsets", "memory"} <= figures["seconds"].keys()
    assert all(figures["store"]["bytes"][part] > 0 for part in ("keys", "index", "the paper's index", "subsets"))


def test_what_was_measured_is_not_measured_again(measure):
    first = measure()
    again = measure()
    assert again == first


def test_a_section_names_every_system_and_part(measure):
    text = section(measure())
    for name in (*results.SYSTEMS, *STEPS.values(), "subsets", "IVF4,PQ4x4, nprobe 32"):
        assert name in text

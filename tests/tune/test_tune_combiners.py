"""Combiners compared on a dev set."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from knn_seq import Datastore, Translator
from knn_seq.decoding import stored_settings
from knn_seq.likelihood import predict
from knn_seq.settings import SearchSettings
from knn_seq.tune import best_tuning, tune, tune_combiners
from knn_seq.tune.tuning import Row, Tuning, verdict

GREEDY = ("--beam-size", 1, "--max-length", 8, "-q")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, save_model, number_corpus):
    """A datastore with a learned combiner, which the build made its default or not."""
    path = tmp_path_factory.mktemp("trained") / "store"
    return Datastore.build(path, save_model(), number_corpus, index_recipe="Flat")


@pytest.fixture
def copied(trained, tmp_path):
    return Datastore(shutil.copytree(trained.path, tmp_path / "store"))


@pytest.fixture(scope="module")
def pairs(number_corpus):
    lines = [line.split("\t") for line in number_corpus.read_text().splitlines()[:5]]
    return [source for source, _ in lines], [target for _, target in lines]


@pytest.fixture(scope="module")
def dev_file(tmp_path_factory, number_corpus):
    path = tmp_path_factory.mktemp("dev") / "dev.tsv"
    path.write_text("".join(number_corpus.read_text().splitlines(keepends=True)[:5]))
    return path


def test_a_trained_combiner_has_its_own_k_and_temperature(trained, pairs):
    translator = Translator(trained, device="cpu", beam_size=1, max_length=8)
    tuning = tune(translator, *pairs, combiner="learned", confirm=2, largest_k=64)
    [surface] = tuning.surfaces
    k = trained.manifest.combiners["full/learned"].k
    assert max(surface.grid.k) == k < 64
    assert (len(surface.grid.temperatures), surface.grid.weights[-1]) == (1, 1.0)
    title, model, *rows = tuning.table().splitlines()
    assert title.split() == ["k", "weight", "log-likelihood", "BLEU"]
    assert model.startswith("the model alone ")
    assert len({len(row.removesuffix("  <- chosen")) for row in (title, model, *rows)}) == 1
    [smaller] = tune(translator, *pairs, combiner="learned", confirm=1, largest_k=3).surfaces
    assert list(smaller.grid.k) == [1, 2, 3]


def test_one_search_serves_all_combiners(trained, pairs, monkeypatch):
    translator = Translator(trained, device="cpu", beam_size=1, max_length=8)
    alone = [tune(translator, *pairs, combiner=name, confirm=2) for name in ("fixed", "learned")]
    searched = []
    monkeypatch.setattr("knn_seq.tune.run.predict", lambda *given: searched.append(given) or predict(*given))
    together = tune_combiners(translator, *pairs, ["fixed", "learned"], confirm=2)
    assert len(searched) == 1
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.surfaces[0].values, other.surfaces[0].values, atol=1e-5)
        assert (one.best.settings, one.best.score) == (other.best.settings, other.best.score)
        assert one.base.score == other.base.score


def tuning_of(combiner, score, log_likelihood=-1.0):
    row = Row(SearchSettings(combiner=combiner), log_likelihood, score)
    base = Row(replace(row.settings, weight=0.0), -2.0, 30.0)
    return Tuning("BLEU", 9, [], base, [row], row)


def test_the_better_one_wins():
    fixed, learned = tuning_of("fixed", 37.1), tuning_of("learned", 39.25)
    assert best_tuning([fixed, learned]) is learned
    assert verdict([fixed, learned]) == "learned wins: 39.25 BLEU, 2.15 more than fixed (37.10)."
    likelier = tuning_of("fixed", 39.25, -0.5)
    assert best_tuning([learned, likelier]) is likelier
    assert verdict([learned, likelier]).startswith("fixed wins: 39.25 BLEU, no more, but at a higher likelihood")


def test_the_command_compares_and_the_winner_becomes_the_default(knn_seq, copied, dev_file, tmp_path):
    options = ("--dev", dev_file, "--confirm", 2, *GREEDY, "--json", tmp_path / "tuning.json")
    code, out, err = knn_seq("tune", copied.path, *options)
    assert (code, err) == (0, "")
    assert {"combiner learned", "combiner fixed"} <= set(out.splitlines())
    assert out.count("<- chosen") == 2
    found = json.loads((tmp_path / "tuning.json").read_text())
    [loser] = found["others"]
    assert {found["combiner"], loser["combiner"]} == {"learned", "fixed"}
    scores = [max(row["score"] for row in each["confirmed"]) for each in (found, loser)]
    assert f"{found['combiner']} wins: {scores[0]:.2f} BLEU" in out
    assert scores[0] >= scores[1]
    after = Datastore(copied.path)
    assert after.search_settings.combiner == found["combiner"]
    for each in (found, loser):
        kept = stored_settings(after, combiner=each["combiner"])
        assert {name: getattr(kept, name) for name in each["chosen"]} == each["chosen"]
        assert (copied.path / f"tuning-full-{each['combiner']}.png").exists()
    assert set(json.loads((copied.path / "tuning.json").read_text())) == {"full/learned", "full/fixed"}
    assert after.manifest.defaults["median_distance"] == copied.manifest.defaults["median_distance"]
    translated = Translator(after, device="cpu").decoder.settings()
    assert (translated.k, translated.weight) == (found["chosen"]["k"], found["chosen"]["weight"])


def test_a_named_combiner_is_tuned_alone(knn_seq, copied, dev_file):
    code, out, _ = knn_seq("tune", copied.path, "--dev", dev_file, "--confirm", 1, *GREEDY, "--combiner", "learned")
    assert code == 0
    assert "wins" not in out
    assert set(json.loads((copied.path / "tuning.json").read_text())) == {"full/learned"}


def test_a_temperature_is_refused_where_the_combiner_has_its_own(knn_seq, trained, dev_file, tmp_path):
    given = ("--combiner", "learned", "--temperature", 5)
    (tmp_path / "in.txt").write_text("5 6\n")
    commands = [
        ("tune", trained.path, "--dev", dev_file, *given),
        ("translate", trained.path, "--input", tmp_path / "in.txt", *given),
        ("evaluate", trained.path, "--test", dev_file, "--system", "x: combiner=learned,temperature=5"),
        ("evaluate", trained.path, "--test", dev_file, "--temperature", 5, "--system", "x: combiner=learned"),
    ]
    for command in commands:
        code, out, err = knn_seq(*command)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert "'learned' has a temperature of its own" in err
        assert "temperature out, or take another combiner, such as fixed." in err
    fixed = ("--system", "x: combiner=fixed,temperature=5", "--system", "y: combiner=learned", "--stored", 2)
    code, _, err = knn_seq("evaluate", trained.path, "--test", dev_file, *fixed, *GREEDY)
    assert code == 0, err

"""Combiners on the command line: what a build trains, and what is told of it."""

from __future__ import annotations

import pytest

from knn_seq.datastore import Datastore
from knn_seq.decoding import store_settings, stored_settings


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, number_corpus):
    path = tmp_path_factory.mktemp("pairs") / "train.tsv"
    path.write_text("".join(number_corpus.read_text().splitlines(keepends=True)[:40]))
    return path


def built(knn_seq, save_model, pairs, store, *options):
    given = ("build", store, "--model", save_model(), "--corpus", pairs, "--index-recipe", "Flat", *options)
    code, out, err = knn_seq(*given)
    return code, out, err


def line_of(text, name):
    [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return line.removeprefix(name).strip()


def test_a_build_trains_a_combiner_with_other_text_and_says_so(knn_seq, save_model, pairs, tmp_path):
    (tmp_path / "general.txt").write_text("7 8 9\n10 11\n\n12\n13 14\n")
    store = tmp_path / "store"
    code, out, err = built(knn_seq, save_model, pairs, store, "--general", tmp_path / "general.txt")
    assert code == 0, err
    info = Datastore(store).manifest.combiners["full/learned"]
    assert info.general_sentences == 4
    told = line_of(out, "combiner full/learned")
    assert told.startswith(f"learned, k up to {info.k}, trained on {info.tokens:,} tokens, 4 general sentences; ")
    likelihoods = ", ".join(f"{name} {value:.3f}" for name, value in info.log_likelihoods.items())
    assert told.endswith(f"log-likelihoods: {likelihoods}")
    assert list(info.log_likelihoods) == ["model", "fixed", "learned"]
    assert "temperature" in line_of(out, "tuned full/fixed")
    assert "temperature" not in line_of(out, "tuned full/learned")
    assert "combiner learned, k 32, weight 1" in line_of(out, "tuned full/learned")
    code, same, _ = knn_seq("info", store)
    assert (code, same) == (0, out)
    opened = Datastore(store)
    store_settings(opened, stored_settings(opened, combiner="learned"), as_default=True)
    assert "combiner learned, k 32, weight 1" in line_of(knn_seq("info", store)[1], "settings")


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
def test_a_combiner_without_weights_trains_nothing(knn_seq, save_model, pairs, tmp_path, combiner):
    code, out, err = built(knn_seq, save_model, pairs, tmp_path / "store", "--combiner", combiner)
    assert code == 0, err
    assert "training" not in err
    store = Datastore(tmp_path / "store")
    assert (store.manifest.combiners, store.search_settings.combiner) == ({}, combiner)
    assert not any(line.startswith("combiner ") for line in out.splitlines())
    assert f"combiner {combiner}" in line_of(out, "settings")


def test_without_a_sample_nothing_is_trained_and_the_default_works(save_model, pairs, tmp_path):
    options = {"index_recipe": "Flat", "calibration_sentences": 0}
    store = Datastore.build(tmp_path / "store", save_model(), pairs, **options)
    assert (store.manifest.combiners, store.search_settings.combiner) == ({}, "fixed")


def test_what_cannot_be_trained_is_one_sentence(knn_seq, save_model, pairs, tmp_path):
    cases = [(("--combiner", "nobody"), "no combiner 'nobody'"), (("--general", tmp_path / "none.txt"), "none.txt")]
    for number, (options, sentence) in enumerate(cases):
        code, out, err = built(knn_seq, save_model, pairs, tmp_path / str(number), *options, "-q")
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert sentence in err

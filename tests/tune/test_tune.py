"""Tuning against a datastore made by hand, whose best settings are known."""

from __future__ import annotations

import json
import math
import shutil
from typing import NamedTuple

import numpy as np
import pytest
import torch
from number_stores import store_of_keys
from skipping import skip_path
from tiny_models import END

from knn_seq import Datastore, KnnSeqError, Translator
from knn_seq.decoding import stored_settings
from knn_seq.decoding.skip import SkipNetwork
from knn_seq.metrics.bleu import bleu
from knn_seq.models import TokenPair
from knn_seq.settings import SearchSettings, with_value
from knn_seq.tune import tune
from knn_seq.tune.candidates import FLOORS, candidates


class Pair(NamedTuple):
    source: str
    target: str


DEV = [Pair("5 6 7", "8 9 10 11"), Pair("12 13", "14 15 16 17"), Pair("18", "19 20 21 22")]
WRONG = 50  # no token of the dev set


def written_for(token, helped):
    """What four entries near a token's query say: the nearest is wrong, and the others right if the token is helped."""
    return [WRONG, token, token, token] if helped else [WRONG] * 4


@pytest.fixture(scope="module")
def made_by_hand(tmp_path_factory, save_model):
    """A datastore with four entries near each query of the dev set; for every other token they are all wrong."""
    folder = tmp_path_factory.mktemp("by-hand")
    tokens = [int(token) for pair in DEV for token in f"{pair.target} {END}".split()]
    helped = [token != END and number % 2 == 0 for number, token in enumerate(tokens)]
    written = [written_for(token, good) for token, good in zip(tokens, helped, strict=True)]
    (folder / "train.tsv").write_text("".join(f"5\t{' '.join(map(str, words))}\n" for words in written))
    plain = Datastore.build(folder / "plain", save_model(), folder / "train.tsv", index_recipe="Flat", combiner="fixed")
    model = Translator(plain, device="cpu").model
    encode = model.tokenizer.encode_sources
    queries = model.keys([TokenPair(*map(list, encode([pair.source, pair.target]))) for pair in DEV]).numpy()
    apart = ((queries[:, None] - queries[None]) ** 2).sum(axis=2)
    apart = apart[~np.eye(len(queries), dtype=bool)].min()
    directions = np.linalg.qr(np.random.default_rng(0).standard_normal((queries.shape[1], 4)))[0].T
    keys = np.full((len(plain), queries.shape[1]), 300.0, np.float16)  # ends of sentences are far from everything
    for number, query in enumerate(queries):
        for place, distance in enumerate((0.02, 0.05, 0.05, 0.05)):
            keys[5 * number + place] = query + directions[place] * math.sqrt(distance * apart)
    store = store_of_keys(folder / "store", plain, keys)
    store.add_index("Flat", "hand", as_default=True)
    return Datastore(store.path), queries


def slow_surface(store, queries, translator, grid):
    """Every point of the grid by the formula, over all keys, in float64."""
    model = translator.model
    encode = model.tokenizer.encode_sources
    pairs = [TokenPair(*map(list, encode([pair.source, pair.target]))) for pair in DEV]
    targets = np.array([token for pair in pairs for token in pair.target])
    model_probs = model.score(pairs).log_probs.double().exp().numpy()[range(len(targets)), targets]
    distances = ((store.keys.astype(np.float64)[None] - queries.astype(np.float64)[:, None]) ** 2).sum(axis=2)
    order = np.argsort(distances, axis=1, kind="stable")
    values = np.zeros((len(grid.k), len(grid.temperatures), len(grid.weights)))
    for i, k in enumerate(grid.k):
        nearest = order[:, :k]
        right = store.values.items[nearest] == targets[:, None]
        for j, temperature in enumerate(grid.temperatures):
            near = np.take_along_axis(distances, nearest, axis=1)
            kernel = np.exp(-(near - near[:, :1]) / temperature)
            share = (kernel * right).sum(axis=1) / kernel.sum(axis=1)
            for n, weight in enumerate(grid.weights):
                values[i, j, n] = np.log(weight * share + (1 - weight) * model_probs).mean()
    return values


def test_a_datastore_made_by_hand_is_solved(made_by_hand):
    store, queries = made_by_hand
    translator = Translator(store, device="cpu", beam_size=1, max_length=8)
    tuning = tune(translator, *zip(*DEV, strict=True), confirm=1, largest_k=32)
    [surface] = tuning.surfaces
    np.testing.assert_allclose(surface.values, slow_surface(store, queries, translator, surface.grid), atol=1e-5)
    # Three of the four nearest are right; farther ones are not, and a high temperature favours the three.
    share = 0.75
    weight = max(surface.grid.weights, key=lambda w: 6 * math.log(w * share + (1 - w) / 60) + 9 * math.log(1 - w))
    assert 0.1 < weight < 0.9
    assert (tuning.chosen["k"], tuning.chosen["temperature"]) == (4, surface.grid.temperatures[-1])
    assert tuning.chosen["weight"] == pytest.approx(weight, abs=0.051)
    assert tuning.best.log_likelihood == surface.values.max()
    assert tuning.base.log_likelihood < tuning.best.log_likelihood


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_decoding_decides_among_the_likely(number_store, number_corpus, metric):
    translator = Translator(number_store, device="cpu", beam_size=1, max_length=12)
    pairs = [Pair(*line.split("\t")) for line in number_corpus.read_text().splitlines()[:6]]
    tuning = tune(translator, *zip(*pairs, strict=True), metric=metric, confirm=5)
    assert len(tuning.rows) == 5
    assert tuning.best.score == max(row.score for row in tuning.rows) > tuning.base.score
    again = translator.translate([pair.source for pair in pairs], **tuning.chosen)
    assert (
        sum(output == pair.target for output, pair in zip(again, pairs, strict=True)) >= 5
    )  # the dev set is in the store


def test_candidates_are_likely_and_not_all_the_same():
    values = np.random.default_rng(0).standard_normal((len(FLOORS), 2, 5, 20, 19))
    chosen = candidates(values, 8)
    assert len(set(chosen)) == 8
    assert values[0][chosen[0]] == values[0].max()
    assert values[1][chosen[1]] == values[1].max()
    smooth = -np.abs(np.arange(19) - 9.0) + np.zeros((len(FLOORS), 1, 1, 1, 1))
    assert [point.weight for point in candidates(smooth, 3)] == [9, 6, 12]
    assert len(candidates(np.zeros((1, 1, 1, 1, 2)), 8)) == 1  # there are no more that differ


def test_subset_sizes_are_tuned_together(tmp_path, save_model, number_corpus):
    store = Datastore.build(
        tmp_path / "store",
        save_model(),
        number_corpus,
        index_recipe="Flat",
        sentence_search="bm25",
        codes="Flat",
        combiner="fixed",
    )
    translator = Translator(store, device="cpu", beam_size=1, max_length=12)
    pairs = [Pair(*line.split("\t")) for line in number_corpus.read_text().splitlines()[:8]]
    sizes = (1, 4, 64)
    tuning = tune(translator, *zip(*pairs, strict=True), subset_sizes=sizes, retriever="subset", confirm=4)
    assert [surface.size for surface in tuning.surfaces] == list(sizes)
    for size, surface in zip(sizes, tuning.surfaces, strict=True):
        alone = tune(translator, *zip(*pairs, strict=True), retriever="subset", subset_size=size, confirm=1)
        if size == 1:  # temperatures are measured by the first size
            np.testing.assert_allclose(alone.surfaces[0].values, surface.values, atol=1e-6)
    assert tuning.best.settings.subset_size in sizes
    tuning.keep(store, "dev", as_default=False)
    fresh = Translator(Datastore(store.path), device="cpu")
    assert fresh.decoder.settings().retriever == "full"
    assert fresh.settings({"retriever": "subset"})[0] == tuning.best.settings
    other = Translator(Datastore(store.path), device="cpu", retriever="subset", k=3)
    assert other.decoder.settings() == SearchSettings(**{**tuning.chosen, "k": 3})


def test_skipped_searches_count_in_decoding_not_in_the_grid(skip_store, number_corpus, monkeypatch, tmp_path):
    """The grid is of what neighbours can bring; which of them are looked for was trained."""
    store = Datastore(shutil.copytree(skip_store.path, tmp_path / "store"))
    network = SkipNetwork.load(skip_path(store))
    network.threshold = torch.tensor(torch.inf)  # only the first token of a sentence is searched for
    network.save(skip_path(store))
    translator = Translator(store, device="cpu", beam_size=1, max_length=12, combiner="fixed")
    pairs = [Pair(*line.split("\t")) for line in number_corpus.read_text().splitlines()[:6]]
    kind, rows = type(translator.decoder.retriever(translator.decoder.settings())), []
    retrieve = kind.retrieve
    monkeypatch.setattr(
        kind, "retrieve", lambda self, keys, *rest: rows.append(len(keys)) or retrieve(self, keys, *rest)
    )
    plain = tune(translator, *zip(*pairs, strict=True), skip=None, confirm=3)
    of_all = len(rows)
    skipping = tune(translator, *zip(*pairs, strict=True), skip="learned", confirm=3)
    assert sum(rows[of_all:]) < 0.9 * sum(rows[:of_all])
    np.testing.assert_allclose(skipping.surfaces[0].values, plain.surfaces[0].values, atol=1e-6)
    assert skipping.chosen["skip"] == "learned"
    assert "skip" not in plain.chosen
    for row in skipping.rows:
        own = translator.translate([pair.source for pair in pairs], **with_value(row.settings))
        assert row.score == bleu(own, [pair.target for pair in pairs]).value


@pytest.fixture
def copied(tmp_path, number_store):
    import shutil

    return Datastore(shutil.copytree(number_store.path, tmp_path / "store"))


@pytest.fixture
def dev_file(tmp_path, number_corpus):
    path = tmp_path / "dev.tsv"
    path.write_text("".join(number_corpus.read_text().splitlines(keepends=True)[:5]))
    return path


def test_the_command_stores_what_translate_finds(knn_seq, copied, dev_file, tmp_path):
    before = copied.search_settings
    options = ["--dev", dev_file, "--confirm", 2, "--beam-size", 1, "--max-length", 12, "-q"]
    code, out, err = knn_seq("tune", copied.path, *options, "--json", tmp_path / "tuning.json")
    assert (code, err) == (0, "")
    assert "<- chosen" in out
    found = json.loads((tmp_path / "tuning.json").read_text())
    after = Translator(Datastore(copied.path), device="cpu").decoder.settings()
    assert {name: getattr(after, name) for name in found["chosen"]} == found["chosen"]
    assert (copied.path / "tuning-full-fixed.png").read_bytes().startswith(b"\x89PNG")
    kept = json.loads((copied.path / "tuning.json").read_text())["full/fixed"]
    assert kept["surface"] == found["surface"]
    # Another combiner is kept apart, and is the default only if that is asked for.
    code, out, _ = knn_seq("tune", copied.path, *options, "--combiner", "distance")
    assert "--combiner distance" in out
    assert Datastore(copied.path).search_settings == after
    assert stored_settings(Datastore(copied.path), combiner="distance").combiner == "distance"
    assert set(json.loads((copied.path / "tuning.json").read_text())) == {"full/fixed", "full/distance"}
    knn_seq("tune", copied.path, *options, "--combiner", "distance", "--as-default")
    assert Datastore(copied.path).search_settings.combiner == "distance"
    assert stored_settings(Datastore(copied.path), combiner="fixed").k == after.k != before.k or after == before


def test_without_matplotlib_all_but_the_plot_is_stored(knn_seq, copied, dev_file, monkeypatch):
    monkeypatch.setattr("knn_seq.evaluate.plots.find_spec", lambda name: None)
    options = ("--dev", dev_file, "--confirm", 1, "--beam-size", 1, "--max-length", 8, "-q")
    code, out, err = knn_seq("tune", copied.path, *options)
    assert (code, err) == (0, "")
    assert out.endswith(
        "The likelihoods were not drawn. The library matplotlib is missing: pip install knn-seq[plot].\n"
    )
    assert "full/fixed" in json.loads((copied.path / "tuning.json").read_text())
    assert not list(copied.path.glob("*.png"))
    code, out, err = knn_seq("tune", copied.path, *options, "--plot", copied.path / "a.png")
    assert (code, out) == (2, "")
    assert err == "knn-seq: The library matplotlib is missing: pip install knn-seq[plot].\n"


def test_a_dry_run_stores_nothing(knn_seq, copied, dev_file):
    files = {path: path.read_bytes() for path in copied.path.iterdir() if path.is_file()}
    code, out, _ = knn_seq("tune", copied.path, "--dev", dev_file, "--confirm", 1, "--max-length", 8, "-q", "--dry-run")
    assert code == 0
    assert "Nothing was stored" in out
    assert {path: path.read_bytes() for path in copied.path.iterdir() if path.is_file()} == files


def test_a_memory_is_tuned_without_a_datastore(knn_seq, save_model, number_corpus, dev_file):
    code, out, _ = knn_seq(
        "tune",
        *("--translation-memory", number_corpus, "--model", save_model(), "--dev", dev_file),
        *("--confirm", 1, "--beam-size", 1, "--subset-sizes", "2,8", "--max-length", 8, "-q"),
    )
    assert code == 0
    assert "combiner fixed" in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--metric", "meteor"], "There is no metric 'meteor'"),
        (["--subset-sizes", "4,x"], "--subset-sizes is a list"),
        (["--plot", "surface.txt"], "--plot draws .png"),
        (["--confirm", "0"], "--confirm must be at least 1"),
        (["--json", "nowhere/at/all.json"], "does not exist"),
    ],
)
def test_bad_options_are_one_sentence(knn_seq, copied, dev_file, options, sentence):
    code, _, err = knn_seq("tune", copied.path, "--dev", dev_file, "-q", *options)
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_an_empty_dev_set_is_refused(number_store):
    with pytest.raises(KnnSeqError, match="no sentence pair in the dev set"):
        tune(Translator(number_store, device="cpu"), [], [])

"""Pointers instead of searches: decoding, likelihood and explanations against a slow reference of the algorithm."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from slow_pointers import SlowPointers

from knn_seq import Datastore, KnnSeqError, Translator
from knn_seq.build.clusters import store_clusters
from knn_seq.decoding.clusters import Clusters, open_clusters
from knn_seq.decoding.pointers import Pointers, distances_to
from knn_seq.decoding.searches import Searches
from knn_seq.errors import InvalidSetting
from knn_seq.explain import explain
from knn_seq.index import Neighbours
from knn_seq.index.exact import exact_search
from knn_seq.likelihood import predict_batches
from knn_seq.settings import SearchSettings
from knn_seq.storage.continuation import next_entries

SENTENCES, PHRASES = 90, 6
LENGTH = 12
SETTINGS = {"k": 6, "temperature": 20.0, "weight": 0.9, "combiner": "fixed", "max_length": LENGTH}
RULES = {
    "one": {"pointers": 1, "pointer_agreement": 0.0},
    "three": {"pointers": 3, "pointer_agreement": 0.0},
    "agreeing": {"pointers": 2, "pointer_agreement": 0.7},
    "clusters": {"pointers": 2, "pointer_agreement": 0.0, "clusters": True},
}
MODES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "nbest": 3},
    "sentence by sentence": {"beam_size": 3, "batch_size": 1},
    "small batches": {"beam_size": 2, "batch_size": 4},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory, save_model):
    """A datastore of a few phrases that come again and again, with clusters."""
    folder = tmp_path_factory.mktemp("pointers")
    generator = np.random.default_rng(4)
    phrases = [generator.integers(8, 30, 4).tolist() for _ in range(PHRASES)]
    lines = []
    for _ in range(SENTENCES):
        chosen = generator.choice(PHRASES, 2)
        text = " ".join(str(token) for number in chosen for token in phrases[number])
        lines.append(f"{text} {generator.integers(30, 60)}\t{text}\n")
    (folder / "train.tsv").write_text("".join(lines))
    options = {"index_recipe": "Flat", "combiner": "fixed", "key_dtype": "float32", "calibration_sentences": 0}
    made = Datastore.build(folder / "store", save_model(), folder / "train.tsv", **options)
    store_clusters(made, size=8)
    return made


@pytest.fixture(scope="module")
def translator(store):
    return Translator(store, device="cpu", **{name: SETTINGS[name] for name in SETTINGS if name != "max_length"})


@pytest.fixture(scope="module")
def sources(store):
    return [store.texts[number][0] for number in (0, 5, 9, 14, 20)] + ["8 9 10", "31 12 44 9"]


def tokens_of(translator, source):
    [read], _ = translator.read([source])
    return read.tokens


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mode", MODES)
def test_scores_are_those_of_the_reference(translator, sources, rule, mode):
    options = SETTINGS | RULES[rule] | MODES[mode]
    combiner = translator.decoder.combiner(translator.settings(options)[0])
    searched = []
    for source, best in zip(sources, translator.translate(sources, **options), strict=True):
        slow = SlowPointers(translator, tokens_of(translator, source), options)
        for output in (best, *best.alternatives):
            steps = [output.tokens[:place] for place in range(len(output.tokens))]
            score = sum(
                slow.log_probs(prefix, combiner)[token].item()
                for prefix, token in zip(steps, output.tokens, strict=True)
            )
            assert output.score == pytest.approx(score, abs=2e-3)
            searched += [slow.state(prefix)[4] for prefix in steps]
    assert 0 < sum(searched) < len(searched)  # some steps are searched, and some are not


@pytest.mark.parametrize("rule", RULES)
def test_likelihood_finds_and_searches_what_decoding_does(translator, sources, rule):
    options = SETTINGS | RULES[rule] | {"beam_size": 1}
    search, _ = translator.settings(options)
    outputs = translator.translate(sources, **options)
    references = [translator.references([output.source], [""])[0]._replace(target=output.tokens) for output in outputs]
    searches = Searches()
    wanted_searches = 0
    for numbers, [predictions] in predict_batches(translator.decoder, references, [search], searches=[searches]):
        row = 0
        for number in numbers:
            slow = SlowPointers(translator, tokens_of(translator, sources[number]), options)
            for place in range(len(outputs[number].tokens)):
                wanted = slow.neighbours(outputs[number].tokens[:place])
                wanted_searches += slow.state(outputs[number].tokens[:place])[4]
                assert sorted(predictions.neighbours.ids[row].tolist()) == sorted(wanted.ids[0].tolist())
                torch.testing.assert_close(
                    predictions.neighbours.distances[row], wanted.distances[0], atol=1e-3, rtol=1e-4
                )
                row += 1
    assert searches.made == wanted_searches
    assert searches.wanted == sum(len(output.tokens) for output in outputs)


def test_explanations_tell_the_neighbours_that_were_followed(translator, sources):
    options = SETTINGS | RULES["one"] | {"beam_size": 1}
    [output] = translator.translate(sources[:1], **options)
    search = {name: options[name] for name in options if name not in ("beam_size", "max_length")}
    [explanation] = explain(translator, [output], **search)
    assert explanation.log_probability == pytest.approx(output.score, abs=1e-3)
    slow = SlowPointers(translator, tokens_of(translator, sources[0]), options)
    for place, token in enumerate(explanation.tokens):
        wanted = {entry for entry, _ in slow.state(output.tokens[:place])[3]}
        assert {neighbour.entry for neighbour in token.neighbours} == wanted


def test_a_minimum_that_is_never_reached_searches_every_token(translator, sources):
    searches = []
    for options in ({}, {"pointers": 7}):  # more than k
        batch = translator.decoder.batch
        counted = Searches()
        translator.decoder.batch = lambda s, w, t=None, at_once=True, c=counted: batch(s, w, t, at_once, c)
        searches.append((translator.translate(sources, **SETTINGS, **options), counted))
        translator.decoder.batch = batch
    (plain, all_rows), (never, none_saved) = searches
    assert plain == never
    assert all_rows.saved == none_saved.saved == 0
    assert none_saved.wanted > 0


def test_pointers_and_skipping_are_not_combined(skip_store):
    translator = Translator(skip_store, device="cpu", combiner="fixed", k=6, temperature=30.0, weight=0.7, beam_size=1)
    with pytest.raises(InvalidSetting, match="--pointers or --skip, not both"):
        translator.translate("5 6 7", skip="learned", pointers=1, max_length=8)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=6), st.data())
def test_the_next_entry_is_of_the_same_sentence(targets, data):
    class Store:
        class values:
            offsets = np.cumsum([0, *map(len, targets)])

            @classmethod
            def row_of(cls, items):
                return np.searchsorted(cls.offsets, items, side="right") - 1

        positions = None

    places = [(sentence, place) for sentence, target in enumerate(targets) for place in range(len(target))]
    entry = data.draw(st.integers(0, len(places) - 1))
    sentence, place = places[entry]
    wanted = entry + 1 if place + 1 < len(targets[sentence]) else -1
    assert next_entries(Store, np.array([entry])).tolist() == [wanted]


def test_deleted_entries_are_neither_followed_nor_joined(store, monkeypatch):
    deleted = np.zeros(len(store), bool)
    deleted[store.values.offsets[3] : store.values.offsets[4]] = True
    monkeypatch.setattr(Datastore, "deleted_entries", deleted, raising=False)
    inside = np.arange(store.values.offsets[3], store.values.offsets[4])
    assert (next_entries(store, inside) == -1).all()
    pointers = Pointers(store, SearchSettings(pointers=1, pointer_agreement=0.0, k=6), open_clusters(store))
    chosen = int(store.values.items[0])
    found = Neighbours.none(1, 6)
    found.ids[0, 0] = 0
    nothing = pointers.follow(torch.zeros(1, store.keys.shape[1]), torch.zeros(1), torch.empty(1, 0))
    pointers.remember(torch.zeros(1), torch.empty((1, 0), dtype=torch.int64), found, nothing)
    followed = pointers.follow(torch.zeros(1, store.keys.shape[1]), torch.zeros(1), torch.tensor([[chosen]]))
    assert followed.rows.tolist() == [True]
    assert not set(followed.ids[0].tolist()) & set(inside.tolist())


def test_rows_may_have_prefixes_of_other_lengths(store):
    """As in a search whose sentences enter and leave: -1 stands behind shorter prefixes."""
    settings = SearchSettings(pointers=1, pointer_agreement=0.0, k=3)
    tokens = store.values.items.tolist()

    def step(pointers, rows):
        """Follow, and let each row find the entry that it names if it is not followed; returns what was followed."""
        sentences = torch.tensor([sentence for sentence, _, _ in rows])
        width = max(len(prefix) for _, prefix, _ in rows)
        prefixes = torch.tensor([prefix + [-1] * (width - len(prefix)) for _, prefix, _ in rows], dtype=torch.int64)
        prefixes = prefixes.view(len(rows), width)
        followed = pointers.follow(torch.zeros(len(rows), store.keys.shape[1]), sentences, prefixes)
        found = Neighbours.none(len(rows), 3)
        found.ids[:, 0] = torch.tensor([entry for _, _, entry in rows])
        pointers.remember(sentences, prefixes, found.replaced(followed.rows, followed.neighbours), followed)
        ids = iter(followed.neighbours.ids[:, 0].tolist())
        return [next(ids) if row else None for row in followed.rows.tolist()]

    pointers = Pointers(store, settings)
    first, second = 0, int(store.values.offsets[2])
    assert step(pointers, [(0, [], first)]) == [None]
    assert step(pointers, [(0, tokens[:1], -1), (1, [], second)]) == [1, None]
    rows = [(1, tokens[second : second + 1], -1), (0, tokens[:2], -1), (2, [], 5)]
    assert step(pointers, rows) == [second + 1, 2, None]
    assert step(pointers, [(0, [*tokens[:2], 7], 3), (1, tokens[second : second + 2], -1)]) == [None, second + 2]


def test_what_was_pruned_away_is_no_next_entry(store, tmp_path):
    smaller = store.prune(tmp_path / "pruned", method="ngram", keep=0.5, device="cpu")
    entries = np.arange(len(smaller))
    sentences, positions = smaller.locate(entries)
    places = set(zip(sentences.tolist(), positions.tolist(), strict=True))
    following = next_entries(smaller, entries)
    for entry, behind in enumerate(following.tolist()):
        sentence, position = int(sentences[entry]), int(positions[entry])
        if behind < 0:
            assert (sentence, position + 1) not in places
        else:
            assert (int(sentences[behind]), int(positions[behind])) == (sentence, position + 1)
    assert (following >= 0).any()
    assert (following < 0).sum() > len(smaller.values)
    Translator(smaller, device="cpu").translate(["8 9 10"], pointers=1, max_length=5)


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_distances_are_those_of_an_index(metric):
    torch.manual_seed(0)
    keys, queries = torch.randn(20, 7), torch.randn(3, 7)
    found = exact_search(keys.numpy(), queries, 20, metric)
    mine = distances_to(queries, keys[found.ids], metric)
    torch.testing.assert_close(mine, found.distances, atol=1e-5, rtol=1e-5)


def test_members_of_clusters_join_behind_the_pointers():
    clusters = Clusters(np.array([0, 1, 0, 2, 1, 1, 0], np.int32))
    pointers = np.array([[4, 2, 1], [3, -1, -1], [9, -1, -1]])  # 9 came after the clusters were made
    assert clusters.join(pointers, 100).tolist() == [[4, 2, 1, 5, 0, 6], [3, *[-1] * 5], [9, *[-1] * 5]]
    assert clusters.join(pointers[:1], 4).tolist() == [[4, 2, 1, 5]]


def test_clusters_hold_similar_keys(store):
    assigned = open_clusters(store).assigned
    assert len(assigned) == len(store)
    keys = store.keys.astype(np.float64)
    centres = np.stack([keys[assigned == number].mean(axis=0) for number in np.unique(assigned)])
    own = ((keys - centres[np.searchsorted(np.unique(assigned), assigned)]) ** 2).sum(axis=1)
    anywhere = ((keys - keys.mean(axis=0)) ** 2).sum(axis=1)
    assert own.mean() < 0.5 * anywhere.mean()
    before = assigned.copy()
    store_clusters(store, size=8)
    assert (open_clusters(store).assigned == before).all()  # the same every time


def test_commands_make_and_use_them(store, tmp_path, knn_seq):
    copied = shutil.copytree(store.path, tmp_path / "store")
    (copied / "clusters.h5").unlink()
    (tmp_path / "in.txt").write_text("8 9 10\n11 12 13\n")
    translate = ("translate", copied, "--input", tmp_path / "in.txt", "-q", "--max-length", "6", "--pointers")
    code, _, err = knn_seq(*translate, "1", "--clusters")
    assert code == 2
    assert err == f"knn-seq: {copied} has no clusters: run `knn-seq index {copied} --clusters`.\n"
    assert knn_seq("index", copied, "--clusters", "8", "-q")[0] == 0
    code, out, err = knn_seq(*translate, "1", "--clusters", "--explain", "json")
    assert code == 0, err
    assert all(json.loads(line)["tokens"] for line in out.splitlines())
    assert knn_seq(*translate)[0] == 0
    assert knn_seq(*translate, "0") == (2, "", "knn-seq: Pointers must be at least 1, not 0.\n")


def test_a_translation_memory_has_none(save_model):
    translator = Translator(model=save_model(), translation_memory=[("5 6", "7 8")], device="cpu", temperature=10.0)
    with pytest.raises(KnnSeqError, match="translation memory has no pointers"):
        translator.translate("5 6", pointers=1)


def test_settings_that_cannot_be_are_refused(translator):
    with pytest.raises(InvalidSetting, match="Pointer-agreement must lie between 0 and 1"):
        translator.translate("5", pointers=1, pointer_agreement=1.5)

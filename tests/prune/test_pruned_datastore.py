"""A pruned datastore is a datastore like any other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from knn_seq.datastore import Datastore
from knn_seq.errors import KnnSeqError
from knn_seq.explain import explain
from knn_seq.models import Source, load_model
from knn_seq.retrieve.full import FullRetriever
from knn_seq.retrieve.subset import SubsetRetriever
from knn_seq.settings import SearchSettings
from knn_seq.storage.flat import open_flat
from knn_seq.translator import Translator
from knn_seq.tune import tune

SOURCES = ["5 6 7 8", "40", "9 10 11 12 13 14"]
SHARES = {"known": 0.6, "ngram": 0.6, "merge": 0.8}


@pytest.fixture(scope="module")
def model(number_store):
    return load_model(number_store.model_settings)


@pytest.fixture(scope="module")
def store(tmp_path_factory, model, number_corpus):
    """A datastore with repeated sentences, prepared for subset search."""
    folder = tmp_path_factory.mktemp("prune")
    lines = number_corpus.read_text().splitlines(keepends=True)
    (folder / "train.tsv").write_text("".join(lines + lines[:60]))
    options = {"index_recipe": "Flat", "sentence_search": "encoder", "codes": "PQ16x4,Refine(keys)"}
    return Datastore.build(folder / "store", model, folder / "train.tsv", **options)


@pytest.fixture(scope="module")
def pruned(store, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruned")
    return {name: store.prune(folder / name, name, keep, model=model) for name, keep in SHARES.items()}


@pytest.fixture(params=SHARES)
def small(request, pruned):
    return pruned[request.param]


def test_entries_stay_as_they_were(small, store):
    keep = SHARES[small.manifest.pruned.method]
    assert len(small) == len(small.keys) == small.manifest.counts.tokens == round(keep * len(store))
    entries = np.arange(len(small))
    sentences, positions = small.locate(entries)
    before = store.values.offsets[sentences] + positions
    assert (np.diff(before) > 0).all()
    assert small.keys.tobytes() == store.keys[before].tobytes()
    assert small.values.items.tobytes() == store.values.items[before].tobytes()
    assert [part.tolist() for part in small.locate([-1, 3])] == [[-1, sentences[3]], [-1, positions[3]]]
    numbers = list(range(len(store.values)))
    assert small.token_pairs(numbers) == store.token_pairs(numbers)
    assert list(small.texts) == list(store.texts)


def test_it_knows_what_it_was_made_from(small, store):
    info = small.manifest.pruned
    assert (info.source, info.entries) == (str(store.path), len(store))
    assert small.manifest.model == store.manifest.model
    assert small.manifest.defaults["median_distance"] > 0
    assert small.manifest.indexes["default"].entries == len(small)
    assert not (small.path / "pruning").exists()
    assert not list(small.path.rglob("*.partial"))


def test_known_drops_only_what_the_model_predicts(pruned, store, model):
    small = pruned["known"]
    sentences, positions = small.locate(np.arange(len(small)))
    kept = np.zeros(len(store), bool)
    kept[store.values.offsets[sentences] + positions] = True
    known = []
    for number in range(len(store.values)):
        [pair] = store.token_pairs([number])
        known += (model.score([pair]).log_probs.argmax(dim=1) == torch.tensor(pair.target)).tolist()
    known = np.array(known)
    assert 0 < known.sum() < len(store)
    # A batch of other pairs rounds differently; no two tokens of a model of random weights are so close.
    assert known[~kept].all() or not known[kept].any()


def test_every_command_works_on_it(small, model):
    translator = Translator(small, model, combiner="fixed", beam_size=2, max_length=12)
    options = {"k": 8, "temperature": 10.0, "weight": 0.8}
    assert translator.translate(SOURCES, **options) != translator.translate(SOURCES, weight=0.0)
    [explanation] = explain(translator, translator.translate(SOURCES[:1], **options), **options)
    for token in explanation.tokens:
        assert token.neighbours
        for neighbour in token.neighbours:
            target = small.targets[neighbour.sentence]
            assert model.tokenizer.token(int(target[neighbour.position])) == neighbour.token
            assert small.values.items[neighbour.entry] == target[neighbour.position]
    tuning = tune(translator, SOURCES, SOURCES, confirm=1)
    assert tuning.best
    assert small.check_index(k=4, queries=16).recall == 1.0


@pytest.mark.parametrize("codes", [None, "Flat"])
def test_subset_search_over_all_sentences_is_a_full_search(small, model, codes):
    if codes:
        small.prepare_subset(codes=codes, model=model)
    assert small.manifest.subset.sentence_search == "encoder"
    settings = SearchSettings(retriever="subset", subset_size=len(small.values), k=6)
    full, subset = FullRetriever.open(small, model, settings), SubsetRetriever.open(small, model, settings)
    queries = torch.from_numpy(small.keys[[3, 50, 100]].astype(np.float32)) + 0.01
    prepared = subset.prepare([Source("5 6", [5, 6, 2])], settings)
    sentences = torch.zeros(3, dtype=torch.int64)
    wanted = full.retrieve(queries, sentences, settings)
    found = subset.retrieve(queries, sentences, settings, prepared)
    torch.testing.assert_close(found.distances, wanted.distances, rtol=1e-4, atol=1e-4)
    counted = small.manifest.pruned.method == "merge"
    assert (found.counts is not None) == (wanted.counts is not None) == counted
    if counted:
        of_entries = torch.from_numpy(small.counts[found.ids.numpy()].astype(np.int64))
        assert torch.equal(found.counts, of_entries)
        assert found.counts.max() > 1


def test_merged_duplicates_give_the_distribution_of_the_unmerged(model, number_corpus, tmp_path):
    """Every sentence is there three times: merged to a third, nothing is lost."""
    lines = number_corpus.read_text().splitlines(keepends=True)[:30]
    (tmp_path / "train.tsv").write_text("".join(3 * list(dict.fromkeys(lines))))
    options = {"index_recipe": "Flat", "calibration_sentences": 0, "batch_tokens": 64}
    store = Datastore.build(tmp_path / "store", model, tmp_path / "train.tsv", **options)
    small = store.prune(tmp_path / "small", "merge", 1 / 3, model=model)
    assert set(small.counts.tolist()) == {3}
    search = {"temperature": 20.0, "weight": 0.7, "beam_size": 1, "max_length": 8}
    k = 4
    before, after = (
        explain(
            Translator(each, model, k=number, **search), Translator(store, model, k=3 * k, **search).translate(SOURCES)
        )
        for each, number in ((store, 3 * k), (small, k))
    )
    for one, other in zip(before, after, strict=True):
        wanted = [token.probability for token in one.tokens]
        assert [token.probability for token in other.tokens] == pytest.approx(wanted, rel=1e-4)


def test_a_pruned_datastore_can_be_pruned_again(pruned, store, model, tmp_path):
    merged = pruned["merge"]
    again = merged.prune(tmp_path / "again", "merge", 0.9, model=model)
    assert again.counts.sum() == merged.counts.sum() == len(store)
    fewer = merged.prune(tmp_path / "fewer", "ngram", 0.5, model=model)
    sentences, positions = fewer.locate(np.arange(len(fewer)))
    for entry, (sentence, position) in enumerate(zip(sentences, positions, strict=True)):
        assert fewer.values.items[entry] == store.values[sentence][position]
    of_merged = {tuple(place): count for *place, count in zip(*merged.locate(np.arange(len(merged))), merged.counts)}
    assert [of_merged[place] for place in zip(sentences, positions)] == fewer.counts.tolist()


def test_everything_kept_is_the_same_datastore(store, model, tmp_path):
    copy = store.prune(tmp_path / "copy", "known", 1.0, model=model)
    for name in ("segments/1/keys.h5", "segments/1/values.h5"):
        before, after = open_flat(store.path / name), open_flat(copy.path / name)
        assert all(np.array_equal(before[dataset], after[dataset]) for dataset in before)
    assert copy.manifest.defaults == store.manifest.defaults


def test_nothing_is_done_twice_and_nothing_is_overwritten(store, model, pruned, number_corpus):
    small = pruned["known"]
    before = (small.path / "datastore.json").stat().st_mtime_ns
    assert len(store.prune(small.path, "known", 0.6, model=model)) == len(small)
    assert (small.path / "datastore.json").stat().st_mtime_ns == before
    for arguments in (("known", 0.5), ("merge", 0.6)):
        with pytest.raises(KnnSeqError, match="already holds another datastore"):
            store.prune(small.path, *arguments, model=model)
    with pytest.raises(KnnSeqError, match="already holds another datastore"):
        pruned["merge"].prune(small.path, "known", 0.6, model=model)
    with pytest.raises(KnnSeqError, match="another pruning"):
        Datastore.build(small.path, model, store.path.parent / "train.tsv", index_recipe="Flat")


def test_what_is_too_much_to_merge_can_be_asked_for_differently(store, model, tmp_path):
    with pytest.raises(KnnSeqError, match="keep at least"):
        store.prune(tmp_path / "small", "merge", 0.01, model=model)
    with pytest.raises(KnnSeqError, match="not complete"):
        Datastore(tmp_path / "small")
    assert len(store.prune(tmp_path / "small", "merge", 0.9, model=model)) == round(0.9 * len(store))


def test_damaged_places_are_refused(store, model, tmp_path):
    small = store.prune(tmp_path / "small", "known", 0.5, model=model)
    other = store.prune(tmp_path / "other", "known", 0.4, model=model)
    small.base.entries_path.write_bytes(other.base.entries_path.read_bytes())
    with pytest.raises(KnnSeqError, match=r"entries.h5 is damaged: its positions do not fit"):
        Datastore(small.path).locate([3])

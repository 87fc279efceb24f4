"""Whatever is done to a datastore, it finds what one that is built at once from what should be in it finds."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from live_stores import OPTIONS, PAIRS

import knn_seq.live.fold
from knn_seq.corpus import SentencePair
from knn_seq.datastore import Datastore
from knn_seq.models import Source, TokenPair
from knn_seq.retrieve import RETRIEVERS
from knn_seq.settings import SearchSettings
from knn_seq.storage.translation_memory import TranslationMemory

SOURCES = [source for source, _ in PAIRS[:4]] + ["30 31 32", "33 34", "35 36 37 38", "8 8 9"]
TARGETS = ["40 41", "42 43 44", "45", "46 47 48 49", "20 21 22"]
PAIR = st.tuples(st.sampled_from(SOURCES), st.sampled_from(TARGETS))
OWN_IDS = st.sampled_from([None, None, "a", "b", "c"])
ADDED = st.lists(st.tuples(PAIR, OWN_IDS), min_size=1, max_size=4)
ACTION = st.one_of(
    st.tuples(st.just("add"), ADDED),
    st.tuples(st.just("update"), ADDED),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 30), min_size=1, max_size=5)),
    st.tuples(st.just("delete source"), st.sampled_from(SOURCES)),
    st.tuples(st.just("merge"), st.none()),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("reopen"), st.none()),
)
ASKED = [(SOURCES[4], "42 43 44"), (SOURCES[0], "20 21 22"), ("50 51", "45 46 47")]
K, TOLERANCE = 6, 1e-3
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of writes to a disk take minutes


class Expected:
    """What should be in a datastore: by id, in a plain dictionary."""

    def __init__(self, pairs: dict[str, tuple[str, str]]) -> None:
        self.pairs = pairs

    def add(self, added, ids: list[str]) -> None:
        assert not set(ids) & set(self.pairs), "an id of another pair was given away"
        assert len(set(ids)) == len(ids) == len(added)
        self.pairs.update(zip(ids, (pair for pair, _ in added), strict=True))

    def update(self, updated, ids: list[str]) -> None:
        known = set(self.pairs)
        for (source, _), own in updated:
            gone = [own] if own in known else [n for n in known if self.pairs.get(n, ("",))[0] == source]
            for name in gone:
                self.pairs.pop(name, None)
        self.add(updated, ids)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(knn_seq.live.fold, "SMALL_ENTRIES", 40)
    monkeypatch.setattr(knn_seq.live.fold, "MOST_SMALL", 2)


@pytest.fixture(scope="module")
def other(tmp_path_factory, model):
    """What others are merged with."""
    path = tmp_path_factory.mktemp("other") / "store"
    pairs = [("50 51", "52 53"), ("54 55 56", "57"), (PAIRS[0][0], "58 59")]
    return Datastore.build(path, model, pairs, sentence_search="bm25", codes="Flat", **OPTIONS)


def act(store: Datastore, expected: Expected, action, model, other, folder: Path) -> Datastore:
    name, argument = action
    pairs = [SentencePair(*pair, "", id=own) for pair, own in argument] if name in ("add", "update") else []
    if name == "add":
        expected.add(argument, store.add(pairs, model))
    elif name == "update":
        expected.update(argument, store.update(pairs, model))
    elif name == "delete":
        ids = [name for place, name in enumerate(sorted(expected.pairs)) if place in argument]
        if ids:
            assert sorted(store.delete(ids)) == sorted(ids)
            expected.pairs = {name: pair for name, pair in expected.pairs.items() if name not in ids}
    elif name == "delete source":
        ids = store.delete(source=argument)
        assert sorted(ids) == sorted(name for name, pair in expected.pairs.items() if pair[0] == argument)
        expected.pairs = {name: pair for name, pair in expected.pairs.items() if name not in ids}
    elif name == "merge":
        store = Datastore.merge(store, other, folder / f"merged-{len(list(folder.iterdir()))}")
        theirs = [pair for name, pair in listed(store).items() if name not in expected.pairs]
        assert sorted(theirs) == sorted(listed(other).values())
        expected.pairs = {**expected.pairs, **{n: p for n, p in listed(store).items() if n not in expected.pairs}}
    elif name == "compact":
        if expected.pairs:
            store.compact()
            assert store.manifest.compacted
    else:
        store = Datastore(store.path)
    return store


def listed(store: Datastore) -> dict[str, tuple[str, str]]:
    return {pair.id: (pair.source, pair.target) for pair in store.live_pairs()}


def neighbours(store: Datastore, model, retriever: str):
    """For each query the distances of its neighbours, and what is known of each of them."""
    chosen = SearchSettings(retriever=retriever, k=K, subset_size=200)
    store = store.snapshot()
    opened = RETRIEVERS.get(retriever).open(store, model, chosen)
    encode = model.tokenizer.encode_sources
    pairs = [TokenPair(*encode([source, target])) for source, target in ASKED]
    queries = model.keys(pairs)
    sentences = torch.arange(len(pairs)).repeat_interleave(torch.tensor([len(pair.target) for pair in pairs]))
    prepared = opened.prepare([Source(source, encode([source])[0]) for source, _ in ASKED], chosen)
    found = opened.retrieve(queries, sentences, chosen, prepared)
    numbers, positions = store.locate(found.ids.numpy())
    rows = []
    for row in zip(found.distances.tolist(), found.values.tolist(), numbers.tolist(), positions.tolist(), strict=True):
        rows.append([(d, (v, store.texts[n], p)) for d, v, n, p in zip(*row, strict=True) if n >= 0])
    return rows


def assert_same_neighbours(got, wanted) -> None:
    for ours, theirs in zip(got, wanted, strict=True):
        assert [d for d, _ in ours] == pytest.approx([d for d, _ in theirs], rel=TOLERANCE, abs=TOLERANCE)
        if theirs:  # of those that are as far as the last one any may be found
            last = theirs[-1][0] - TOLERANCE * max(theirs[-1][0], 1.0)
            assert sorted(each for d, each in ours if d < last) == sorted(each for d, each in theirs if d < last)


@pytest.mark.parametrize("search", ["bm25", "encoder:l2"])
@settings(max_examples=8)
@given(actions=st.lists(ACTION, min_size=2, max_size=7))
def test_any_sequence_of_changes(built, model, other, search, actions):
    folder = Path(tempfile.mkdtemp(dir=IN_MEMORY))
    try:
        shutil.copytree(built(search).path, folder / "store")
        store = Datastore(folder / "store")
        expected = Expected(listed(store))
        for action in actions:
            store = act(store, expected, action, model, other, folder)
            assert listed(store) == expected.pairs
            assert store.manifest.counts.sentences == len(expected.pairs)
        if not expected.pairs:
            return
        path, pairs = folder / "at-once", list(listed(store).values())
        at_once = Datastore.build(path, model, pairs, sentence_search=search, codes="Flat", **OPTIONS)
        assert store.manifest.counts.tokens == len(at_once)
        for retriever in ("full", "subset") if store.manifest.subset else ("full",):
            assert_same_neighbours(neighbours(store, model, retriever), neighbours(at_once, model, retriever))
        memories = [TranslationMemory(each.live_texts()) for each in (store, at_once)]
        assert list(memories[0].texts) == list(memories[1].texts)
    finally:
        shutil.rmtree(folder)

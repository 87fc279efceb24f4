"""A datastore that changes and has its index on a server, or in shards."""

from __future__ import annotations

import pytest
import torch
from live_stores import OPTIONS, PAIRS
from test_live_property import assert_same_neighbours, neighbours

import knn_seq.live.fold
from knn_seq.datastore import Datastore
from knn_seq.errors import IndexUnavailable
from knn_seq.index.milvus import MilvusIndex
from knn_seq.index.segmented import open_segmented
from knn_seq.index.stored import load_index

ADDED = [(f"{30 + n} {31 + n}", f"{20 + n} 41 {45 - n}") for n in range(6)]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(knn_seq.live.fold, "SMALL_ENTRIES", 8)


def built(path, model, recipe: str, pairs=PAIRS) -> Datastore:
    return Datastore.build(path, model, pairs, auto_compact=0.0, **{**OPTIONS, "index_recipe": recipe})


def on_server(store: Datastore) -> set[int]:
    """The ids that its collection has."""
    index = load_index(store.snapshot(), None)
    assert isinstance(index, MilvusIndex)
    found = index._server().ask(
        "query", index._collection, filter="id >= 0", output_fields=["id"], consistency_level="Strong", doing="list"
    )
    return {row["id"] for row in found}


def changed(store: Datastore, model) -> Datastore:
    """Additions that are folded, once and again, deletions and an update."""
    store.add(ADDED[:4], model)
    store.delete(source=ADDED[1][0])
    store.delete(source=PAIRS[2][0])
    store.add(ADDED[4:], model)
    store.update([(PAIRS[5][0], "44 43 42")], model)
    return store


def assert_like_one_built_at_once(store: Datastore, model, path) -> None:
    pairs = [(pair.source, pair.target) for pair in store.live_pairs()]
    assert_same_neighbours(
        neighbours(store, model, "full"), neighbours(built(path, model, "Flat", pairs), model, "full")
    )


@pytest.fixture
def recipe(tmp_path):
    pytest.importorskip("milvus_lite", reason="NOT TESTED: pip install milvus-lite")
    return f"milvus:FLAT@{tmp_path / 'memory.db'}"


def test_milvus_adds_and_deletes_on_the_server(tmp_path, model, recipe):
    store = built(tmp_path / "store", model, recipe)
    collection = load_index(store.snapshot(), None)._collection
    entries = len(store)
    changed(store, model)
    manifest = store.manifest
    assert manifest.indexes["default"].entries > entries
    assert not any(info.indexes for info in manifest.segments.values())
    assert load_index(store.snapshot(), None)._collection == collection
    deleted = store.snapshot().deleted_entries
    live = {number for number in range(manifest.indexes["default"].entries) if not deleted[number]}
    assert on_server(store) == live
    assert_like_one_built_at_once(store, model, tmp_path / "at-once")
    store.compact()
    assert load_index(store.snapshot(), None)._collection != collection
    assert_like_one_built_at_once(store, model, tmp_path / "at-once-again")


def test_an_earlier_generation_does_not_find_what_a_later_one_has_on_the_server(tmp_path, model, recipe):
    store = built(tmp_path / "store", model, recipe)
    before = store.snapshot()
    index = open_segmented(before)
    queries = model.keys([before.token_pairs([0])[0]])
    expected = index.search(queries, 5)
    store.add(ADDED, model)
    assert len(on_server(store)) > len(before)
    assert torch.equal(index.search(queries, 5).ids, expected.ids)


def test_additions_of_a_killed_fold_are_not_found_and_made_again(tmp_path, model, recipe, monkeypatch):
    store = built(tmp_path / "store", model, recipe)
    with monkeypatch.context() as patch:
        patch.setattr(knn_seq.live.fold, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.add(ADDED, model)
    assert max(on_server(store)) >= store.manifest.indexes["default"].entries
    assert_like_one_built_at_once(store, model, tmp_path / "at-once")
    store.add([("55 56", "57 58")], model)
    assert store.manifest.indexes["default"].entries > len(PAIRS) * 4
    assert_like_one_built_at_once(store, model, tmp_path / "at-once-again")


def test_a_server_that_does_not_answer_loses_nothing(tmp_path, model, recipe, monkeypatch, caplog):
    store = built(tmp_path / "store", model, recipe)
    with monkeypatch.context() as patch:

        def fail(self):
            raise IndexUnavailable("Milvus does not answer.")

        patch.setattr(MilvusIndex, "_server", fail)
        changed(store, model)
    assert "does not answer" in caplog.text
    assert_like_one_built_at_once(store, model, tmp_path / "at-once")


def test_shards_take_additions_and_deletions(tmp_path, model):
    store = changed(built(tmp_path / "store", model, "shards:2"), model)
    assert_like_one_built_at_once(store, model, tmp_path / "at-once")
    store.compact()
    assert_like_one_built_at_once(store, model, tmp_path / "at-once-again")

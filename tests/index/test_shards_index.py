"""Indexes side by side, as if they were one."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import killed_build
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from number_stores import store_of_keys

from knn_seq import Translator
from knn_seq.build.index import add_index
from knn_seq.datastore import Datastore
from knn_seq.errors import IndexUnavailable, KnnSeqError
from knn_seq.index import INDEXES, open_index
from knn_seq.index.exact import exact_search
from knn_seq.index.faiss import FaissIndex, faiss
from knn_seq.index.shards import ShardsIndex
from knn_seq.settings import DISTANCE_METRICS, BuildSettings
from knn_seq.storage import DatastoreFolder

ENTRIES, DIMENSION = 6000, 16
RANKED = "PCA8,IVF16,PQ4x4fs,Refine(keys)"


@pytest.fixture(scope="module")
def keys():
    random = np.random.default_rng(0)
    centres = 3 * random.standard_normal((40, DIMENSION))
    return (centres[random.integers(40, size=ENTRIES)] + random.standard_normal((ENTRIES, DIMENSION))).astype("f2")


@pytest.fixture(scope="module")
def queries(keys):
    return keys[::60].astype(np.float32) + 0.1


@pytest.fixture(scope="module")
def filled(keys):
    return ShardsIndex.build(keys, "3xIVF16,SQ8")


@pytest.fixture
def saved(filled, tmp_path):
    """The folder of three shards."""
    filled.save(tmp_path / "index")
    return tmp_path / "index"


def equal(one, other) -> bool:
    return all(map(torch.equal, one, other))


def assert_same(found, expected) -> None:
    """The same distances, and the same entries but for those that are equally near."""
    torch.testing.assert_close(found.distances, expected.distances, rtol=1e-4, atol=1e-4)
    apart = torch.nn.functional.pad(expected.distances.diff(dim=1) > 1e-3, (1, 0), value=True)
    alone = apart & torch.nn.functional.pad(apart[:, 1:], (0, 1), value=False)
    assert torch.equal(found.ids[alone], expected.ids[alone])
    assert alone.any()


def recall(found, exact) -> float:
    return (found.ids.unsqueeze(2) == exact.ids.unsqueeze(1)).any(2).float().mean().item()


# What it finds


@settings(max_examples=80)
@given(
    count=st.integers(1, 7),
    inner=st.sampled_from(["Flat", "torch", "IVF4,Flat"]),
    different=st.integers(4, 120),
    additions=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    removals=st.integers(0, 40),
    own_ids=st.booleans(),
    k=st.integers(1, 90),
    metric=st.sampled_from(DISTANCE_METRICS),
    seed=st.integers(0, 1000),
)
def test_any_shards_are_an_exact_search(count, inner, different, additions, removals, own_ids, k, metric, seed):
    # Keys and queries out of one small set: many lie in one place, or are equally near.
    random = np.random.default_rng(seed)
    pool = random.standard_normal((different, 6)).astype(np.float32)
    index = ShardsIndex(6, metric, f"{count}x{inner}", **({"nprobe": 4} if inner != "torch" else {}))
    index.train(np.concatenate([pool, pool + 1]))
    rows = pool[random.integers(different, size=sum(additions))]
    ids = random.choice(10**6, len(rows), replace=False) if own_ids else np.arange(len(rows))
    for start, size in zip(np.cumsum([0, *additions]), additions, strict=False):
        index.add(rows[start : start + size], ids[start : start + size] if own_ids else None)
    gone = random.choice(ids, min(removals, len(ids)), replace=False) if len(ids) else ids
    assert index.remove(np.append(gone, 10**7)) == len(gone)
    kept = ~np.isin(ids, gone)
    assert len(index) == kept.sum()

    asked = pool[random.integers(different, size=5)]
    distances, found = index.search(asked, k)
    expected = exact_search(rows[kept], asked, k, metric)
    np.testing.assert_allclose(distances, expected.distances, rtol=1e-4, atol=1e-5)
    # Among equally near ones any is right: each is as far as it says, and none comes twice.
    there = found >= 0
    assert torch.equal(there, expected.ids >= 0)
    order = np.argsort(ids)
    by_id = dict(zip(ids.tolist(), range(len(ids)), strict=True))
    assert len(order) == len(by_id)
    for row, numbers, query in zip(distances, found, asked, strict=True):
        real = [by_id[number] for number in numbers.tolist() if number >= 0]
        assert len(set(real)) == len(real)
        assert kept[real].all()
        if real:
            truth = exact_search(rows[real], query[None], len(real), metric)
            np.testing.assert_allclose(row[: len(real)], truth.distances[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("recipe", ["IVF16,Flat", "IVF16,PQ4x4", "IVF16,PQ4x4fs", "IVF16_HNSW8,SQ8"])
def test_shards_find_what_one_index_finds(recipe, count, metric, keys, queries):
    one = FaissIndex.build(keys, recipe, metric, nprobe=3).search(queries, 20)
    several = ShardsIndex.build(keys, f"{count}x{recipe}", metric, nprobe=3).search(queries, 20)
    assert_same(several, one)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("recipe", [RANKED, "PQ4x4,Refine(keys)"])
def test_each_shard_ranks_by_the_keys(recipe, metric, keys, queries):
    exact = exact_search(keys, queries, 10, metric)
    one = FaissIndex.build(keys, recipe, metric, refine_factor=6, nprobe=16)
    several = ShardsIndex.build(keys, f"3x{recipe}", metric, refine_factor=6, nprobe=16)
    assert several.needs_keys
    assert several.options["refine_factor"] == 6
    assert [shard.options["refine_factor"] for shard in several.shards] == [2, 2, 2]  # as many in all
    found, found_by_one = several.search(queries, 10), one.search(queries, 10)
    assert abs(recall(found, exact) - recall(found_by_one, exact)) < 0.03
    everything = ShardsIndex.build(keys, f"3x{recipe}", metric, refine_factor=3000, nprobe=16).search(queries, 10)
    torch.testing.assert_close(everything.distances, exact.distances, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("inner", "least"),
    [
        ("HNSW16", 0.99),
        ("usearch:HNSW16,f32", 0.99),
        ("usearch", 0.99),
        ("IVF16,PQ8x4,RFlat", 0.6),
        ("PCA12,Flat", 0.6),
    ],
)
def test_any_kind_may_be_sharded(inner, least, keys, queries):
    index = ShardsIndex.build(keys, f"3x{inner}")
    assert [len(shard) for shard in index.shards] == [2000, 2000, 2000]
    assert recall(index.search(queries, 10), exact_search(keys, queries, 10)) > least


def test_trained_once(keys):
    index = ShardsIndex.build(keys, "3xIVF16,PQ4x4")
    first, *others = (shard.index.quantizer.reconstruct_n(0, 16) for shard in index.shards)
    assert len(np.unique(first, axis=0)) == 16
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads_change_nothing(threads, filled, queries):
    before = filled.search(queries, 9)
    faiss.omp_set_num_threads(threads)
    try:
        assert equal(filled.search(queries, 9), before)
        assert equal(filled.search(queries[:1], 9), (before.distances[:1], before.ids[:1]))
    finally:
        faiss.omp_set_num_threads(1)


def test_equally_near_ones_come_by_id():
    index = ShardsIndex.build(np.ones((11, 4), np.float32), "4xtorch")
    assert index.search(np.ones((2, 4), np.float32), 11).ids.tolist() == [list(range(11))] * 2


def test_shards_differ_by_one_entry_at_most(keys):
    index = ShardsIndex(DIMENSION, "l2", "7xFlat")
    for start in range(0, 500, 37):  # nobody says how many will come
        index.add(keys[start : min(start + 37, 500)])
        sizes = [len(shard) for shard in index.shards]
        assert max(sizes) - min(sizes) <= 1
    assert index.search(keys[:500], 1).ids.squeeze(1).tolist() == list(range(500))


def test_it_says_how_much_memory_it_takes(keys):
    index = ShardsIndex.build(keys, "4xIVF16,PQ4x4fs")
    assert index.memory == sum(shard.memory for shard in index.shards)
    assert index.memory == pytest.approx(index.expected_memory(ENTRIES), rel=0.01)
    assert index.describe()["memory"] == index.memory


# What fails


def test_an_error_names_the_shard(keys, queries, tmp_path):
    index = ShardsIndex.build(keys, f"2x{RANKED}")
    index.save(tmp_path)
    with pytest.raises(KnnSeqError, match=r"^The search in shard 0 of 2 failed: .*attach them to the index first\.$"):
        ShardsIndex.load(tmp_path).search(queries, 3)


def test_a_library_that_fails_is_named_with_the_shard(saved, queries):
    index = ShardsIndex.load(saved)
    index.shards[1].index = faiss.IndexFlatL2(DIMENSION + 1)
    index.shards[1].index.add(np.zeros((9, DIMENSION + 1), np.float32))
    with pytest.raises(KnnSeqError, match=f"search in shard 1 of 3 .{saved}/shard-1. failed"):
        index.search(queries, 3)


def test_an_index_that_is_away_is_told_from_one_that_is_wrong(filled, queries):
    class Away(FaissIndex):
        def _search(self, queries, k, options):
            raise IndexUnavailable("The server does not answer.")

    index = ShardsIndex(DIMENSION, "l2", "2xIDMap,Flat")
    index.add(queries)
    index.shards[1].__class__ = Away
    with pytest.raises(IndexUnavailable, match="shard 1 of 2 failed: The server does not answer"):
        index.search(queries, 3)


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ("x", "as '4xIVF1024,PQ64', not 'x'"),
        ("0xFlat", "not '0xFlat'"),
        ("5000xFlat", "up to 1024"),
        ("4x", "not '4x'"),
        ("4", "'4' does not say what the shards are"),
        ("2xshards:2xFlat", "Shards of shards"),
        ("2xFlatt", "faiss makes no index"),
        ("2xnothing:at all", "no index 'nothing'"),
    ],
)
def test_a_recipe_that_says_nothing_is_refused(recipe, sentence):
    with pytest.raises(KnnSeqError, match=sentence):
        ShardsIndex(DIMENSION, "l2", recipe)


def test_options_and_metrics_are_those_of_the_inner_index():
    with pytest.raises(KnnSeqError, match="no option 'nprobes'"):
        ShardsIndex(DIMENSION, "l2", "2xFlat", nprobes=3)
    with pytest.raises(KnnSeqError, match="no metric 'l3'"):
        ShardsIndex(DIMENSION, "l3", "2xFlat")
    with pytest.raises(KnnSeqError, match="no option 'nprobe'"):
        ShardsIndex(DIMENSION, "l2", "2xtorch", nprobe=3)


def test_what_the_recipe_leaves_open_fits_all_the_keys():
    one = FaissIndex.recipe_for(10**6, 256)
    assert ShardsIndex.recipe_for(10**6, 256) == f"4x{one}"
    assert ShardsIndex.complete_recipe("9", 10**6, 256) == f"9x{one}"
    assert ShardsIndex.complete_recipe("2xfaiss", 10**6, 256) == f"2x{one}"
    assert ShardsIndex.complete_recipe("2xusearch", 10**6, 256) == "2xusearch"
    assert ShardsIndex.complete_recipe("2xIVF4,Flat", 10**6, 256) == "2xIVF4,Flat"
    tight = 10**6 * 30
    assert ShardsIndex.complete_recipe("2", 10**6, 256, "l2", tight) == f"2x{default_in(tight)}" != f"2x{one}"


def default_in(memory):
    return FaissIndex.recipe_for(10**6, 256, "l2", memory)


# On the disk


@pytest.mark.parametrize("recipe", ["1xFlat", "3xtorch", "5xIVF16,PQ4x4", f"2x{RANKED}", "2xusearch:HNSW16,f32"])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_saved_shards_are_the_same(recipe, metric, keys, queries, tmp_path):
    index = ShardsIndex.build(keys, recipe, metric)
    index.save(tmp_path / "new" / "folder")
    loaded = ShardsIndex.load(tmp_path / "new" / "folder", writable=True)
    if loaded.needs_keys:
        loaded.attach_keys(keys)
    assert loaded.describe() == index.describe()
    assert equal(loaded.search(queries, 12), index.search(queries, 12))
    loaded.add(keys[:1] + 20)
    if not loaded.needs_keys:
        assert loaded.search(keys[:1] + 20, 1).ids.tolist() == [[ENTRIES]]


@pytest.mark.parametrize("name", ["link/index", "index"])
def test_a_folder_behind_a_link_or_named_from_here(name, filled, queries, tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        filled.save(Path(name))
        assert equal(ShardsIndex.load(Path(name)).search(queries, 5), filled.search(queries, 5))


def test_other_options_are_passed_on_to_the_shards(saved, queries, keys):
    wide, narrow = ShardsIndex.load(saved, nprobe=16), ShardsIndex.load(saved, nprobe=1)
    assert [shard.options["nprobe"] for shard in wide.shards] == [16] * 3
    exact = exact_search(keys, queries, 5)
    assert recall(wide.search(queries, 5), exact) > recall(narrow.search(queries, 5), exact)
    narrow.save(saved)
    assert [shard.index.nprobe for shard in ShardsIndex.load(saved).shards] == [1] * 3


def test_saving_replaces_and_leaves_nothing_beside(saved, keys):
    smaller = ShardsIndex.build(keys[:100], "2xFlat")
    smaller.save(saved)
    smaller.save(saved)
    assert len(ShardsIndex.load(saved)) == 100
    assert {path.name for path in saved.iterdir()} == {"index.json", "shards.json", "shard-0", "shard-1"}


def test_shards_are_written_again_only_if_they_were_changed(saved, keys):
    inodes = [inode(saved / f"shard-{number}") for number in range(3)]
    index = ShardsIndex.load(saved, writable=True)
    assert index.remove(np.array([1, 4])) == 2
    index.save(saved)
    after = [inode(saved / f"shard-{number}") for number in range(3)]
    assert [old == new for old, new in zip(inodes, after, strict=True)] == [True, False, True]
    again = ShardsIndex.load(saved)
    assert [len(shard) for shard in again.shards] == [2000, 1998, 2000]
    with pytest.raises(KnnSeqError, match="need ids"):
        again.add(keys[:1])


def inode(folder: Path) -> int:
    return (folder / "index.faiss").stat().st_ino


def test_files_that_others_have_replaced_are_not_taken_for_the_shard(saved, keys, queries, tmp_path):
    index = ShardsIndex.load(saved)
    before = index.search(queries, 5)
    ShardsIndex.build(keys[::-1].copy(), "3xIVF16,SQ8").save(saved)
    index.save(tmp_path / "elsewhere")
    assert equal(ShardsIndex.load(tmp_path / "elsewhere").search(queries, 5), before)


def test_a_shard_may_be_moved_to_another_place(saved, tmp_path, queries):
    before = ShardsIndex.load(saved).search(queries, 5)
    away = tmp_path / "other disk" / "second"
    away.parent.mkdir()
    (saved / "shard-1").rename(away)
    (saved / "shard-1").symlink_to(away)
    index = ShardsIndex.load(saved, writable=True)
    assert equal(index.search(queries, 5), before)

    index.remove(before.ids[0])
    index.save(saved)  # what is new goes there, too
    assert (saved / "shard-1").is_symlink()
    assert len(ShardsIndex.load(saved)) == ENTRIES - 5
    assert [path.name for path in away.parent.iterdir()] == ["second"]

    shutil.rmtree(away)
    with pytest.raises(KnnSeqError, match=f"Shard 1 of 3 is missing: {saved}/shard-1 leads to {away}, and that is not"):
        ShardsIndex.load(saved)


def test_a_missing_or_damaged_shard_is_named_in_one_sentence(saved, keys, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)

    def again(sentence):
        with pytest.raises(KnnSeqError, match=sentence) as caught:
            ShardsIndex.load(saved)
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
        shutil.rmtree(saved)
        shutil.copytree(copy, saved)

    shutil.rmtree(saved / "shard-2")
    again(f"Shard 2 of 3 is missing: {saved}/shard-2 is not there; bring it back")
    (saved / "shard-0" / "index.json").unlink()
    again("Shard 0 of 3 cannot be opened: There is no complete index in .*shard-0")
    os.truncate(saved / "shard-1" / "index.faiss", 1000)
    again(r"Shard 1 of 3 cannot be opened: .*index\.faiss is damaged")
    shutil.rmtree(saved / "shard-1")
    FaissIndex.build(keys[:500], "IVF16,SQ8").save(saved / "shard-1")
    again("Shard 1 of 3 is of another index")
    (saved / "shards.json").unlink()
    again("no complete index")
    noted = json.loads((saved / "shards.json").read_text())
    for other in ([], noted[:2], {"0": noted[0]}, "x"):
        text = json.dumps(other)
        (saved / "shards.json").write_text(text)
        description = json.loads((saved / "index.json").read_text())
        (saved / "index.json").write_text(json.dumps({**description, "bytes": len(text)}))
        again("does not describe 3 shards")
    assert len(ShardsIndex.load(saved)) == ENTRIES


def test_a_shard_that_cannot_be_written_leaves_the_old_index(saved, keys, tmp_path):
    away = tmp_path / "away"
    (saved / "shard-1").rename(away)
    (saved / "shard-1").symlink_to(away)
    (tmp_path / "away.partial").write_text("a file where a folder should be")
    with pytest.raises(OSError, match="partial"):
        ShardsIndex.build(keys[:300], "3xFlat").save(saved)
    assert len(ShardsIndex.load(saved)) == ENTRIES
    assert {path.name for path in saved.iterdir()} == {"index.json", "shards.json", "shard-0", "shard-1", "shard-2"}


PLACES = ["os:rename", "os:replace", "shutil:rmtree", "pathlib/Path:unlink", "os:fsync"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_whenever_saving_is_killed_an_index_is_complete_or_refused(place, count, saved, keys, queries):
    new = ShardsIndex.build(keys[:900], "2xIVF16,SQ8")
    code = killed_build._run(_save_over, saved, keys[:900], place, count)
    assert code in (0, -signal.SIGKILL)
    assert code or place != "os:fsync"  # that many there are
    if (saved / "index.json").exists():
        index = ShardsIndex.load(saved)
        assert len(index) in ((ENTRIES, 900) if code else (900,))
        assert len(index.search(queries, 5).ids.unique()) > 100
    else:
        with pytest.raises(KnnSeqError, match="no complete index"):
            ShardsIndex.load(saved)
    new.save(saved)
    assert equal(ShardsIndex.load(saved).search(queries, 5), new.search(queries, 5))
    assert {path.name for path in saved.iterdir()} == {"index.json", "shards.json", "shard-0", "shard-1"}


def _save_over(folder: Path, keys, place: str, count: int) -> None:
    index = ShardsIndex.build(keys, "2xIVF16,SQ8")
    killed_build._kill_when(place, count)
    index.save(folder)


# In a datastore


@pytest.fixture
def store(tmp_path, number_store, keys):
    return store_of_keys(tmp_path / "store", number_store, keys)


def searched(store: DatastoreFolder, name: str, **options):
    fresh = DatastoreFolder(store.path)
    return open_index(fresh, name).search(fresh.keys[::50], 8, options)


@pytest.mark.parametrize("part_entries", [1000, 10**6])
@pytest.mark.parametrize("recipe", ["IVF16,SQ8", "PCA8,IVF16,PQ4x4", "IVF16,PQ4x4fs", "Flat"])
def test_a_datastore_with_shards_finds_what_one_index_finds(store, recipe, part_entries, monkeypatch):
    monkeypatch.setattr("knn_seq.index.budget.PART_ENTRIES", part_entries)
    add_index(store.path, BuildSettings(index_recipe=recipe), "one")
    add_index(store.path, BuildSettings(index_recipe=f"shards:3x{recipe}"), "several")
    one, several = searched(store, "one"), searched(store, "several")
    assert_same(several, one)
    facts = DatastoreFolder(store.path).manifest.indexes["several"]
    assert (facts.type, facts.recipe, facts.entries) == ("shards", f"3x{recipe}", ENTRIES)


def test_ranking_by_the_datastores_keys(store):
    add_index(store.path, BuildSettings(index_recipe=f"shards:3x{RANKED}"), "several")
    add_index(store.path, BuildSettings(index_recipe="torch"), "exact")
    assert recall(searched(store, "several", nprobe=16, refine_factor=60), searched(store, "exact")) > 0.95


@pytest.mark.parametrize("recipe", ["IVF16,Flat", "IVF16,PQ8x4,Refine(keys)"])
def test_lists_of_shards_stay_on_the_disk(store, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("knn_seq.index.budget.PART_ENTRIES", 2500)
    add_index(store.path, BuildSettings(index_recipe=f"shards:3x{recipe}", memory_limit="1GB"), "memory")
    add_index(
        store.path,
        BuildSettings(index_recipe=f"shards:3x{recipe}", memory_limit="60kB" if "PQ" in recipe else "200kB"),
        "disk",
    )
    folder = Datastore(store.path).index_folder("disk")
    sizes = [(folder / f"shard-{number}" / "lists.ivfdata").stat().st_size for number in range(3)]
    assert min(sizes) >= 2000 * 8
    thorough = {"nprobe": 16, "refine_factor": 100}  # a smaller budget has a smaller sample to learn codes from
    assert_same(searched(store, "disk", **thorough), searched(store, "memory", **thorough))
    index = ShardsIndex.load(folder)
    assert index.memory < 40_000

    index.save(tmp_path / "elsewhere")
    index.save(folder)
    for place in (tmp_path / "elsewhere", folder):
        again = ShardsIndex.load(place)
        if again.needs_keys:
            again.attach_keys(store.keys)
        assert equal(again.search(store.keys[::50], 8), searched(store, "disk"))
    shutil.rmtree(folder)
    again = ShardsIndex.load(tmp_path / "elsewhere")
    if again.needs_keys:
        again.attach_keys(store.keys)
    assert len(again.search(store.keys[::50], 8).ids.unique()) > 300

    os.truncate(tmp_path / "elsewhere" / "shard-1" / "lists.ivfdata", 100)
    with pytest.raises(KnnSeqError, match=r"Shard 1 of 3 cannot be opened: .*lists\.ivfdata is damaged"):
        ShardsIndex.load(tmp_path / "elsewhere")


@pytest.mark.parametrize(("recipe", "memory"), [("3xIVF16,SQ8", "1GB"), ("2xIVF16,Flat", "200kB"), ("2xFlat", "1GB")])
@pytest.mark.parametrize(("place", "count"), [("os:rename", 3), ("os:replace", 12), ("os:replace", 40)])
def test_a_killed_build_of_shards_goes_on(store, recipe, memory, place, count):
    arguments = (store.path, f"shards:{recipe}", memory, 1500)
    code = killed_build.add_index(*arguments, place, count)
    assert code in (0, -signal.SIGKILL)
    assert code or count == 40
    assert killed_build.add_index(*arguments) == 0
    found = searched(store, "new", nprobe=16)
    assert recall(found, exact_search(store.keys, store.keys[::50], 8)) > 0.9
    folder = Datastore(store.path).index_folder("new")
    assert not list(folder.parent.glob(".*"))
    assert not list(folder.rglob("*.partial"))


def test_translations_are_those_of_one_flat_index(number_store, number_corpus, save_model, tmp_path):
    path = tmp_path / "sharded"
    store = Datastore.build(path, save_model(), number_corpus, index_recipe="shards:3xFlat", combiner="fixed")
    assert store.manifest.indexes["default"].type == "shards"
    assert store.manifest.defaults == number_store.manifest.defaults
    sources = [line.split("\t")[0] for line in number_corpus.read_text().splitlines()[:12]]
    base = Translator(store, weight=0.0, nbest=3).translate(sources)
    for options in ({}, {"k": 40, "weight": 0.9, "temperature": 3.0}):
        one = Translator(number_store, nbest=3, **options).translate(sources)
        several = Translator(store, nbest=3, **options).translate(sources)
        assert [each.tokens for each in several] == [each.tokens for each in one]
        assert [each.alternatives for each in several] == [each.alternatives for each in one]
        assert several != base


def test_the_registry_knows_it():
    assert INDEXES.get("shards") is ShardsIndex


def test_a_search_starts_no_threads_for_lists_on_the_disk(store):
    add_index(store.path, BuildSettings(index_recipe="shards:2xIVF16,Flat", memory_limit="200kB"), "disk")
    index = ShardsIndex.load(Datastore(store.path).index_folder("disk"))
    lists = [faiss.downcast_InvertedLists(shard.index.invlists) for shard in index.shards]
    assert [each.prefetch_nthread for each in lists] == [0, 0]


def test_parts_of_lists_on_the_disk_are_merged_without_their_tables(tmp_path, keys):
    index = FaissIndex(DIMENSION, "l2", "IVF16,PQ4x4")
    index.train(keys)
    index.save(tmp_path / "trained")
    parts = []
    for start in range(0, ENTRIES, 1000):
        part = FaissIndex.load(tmp_path / "trained", writable=True).part()
        part.add(keys[start : start + 1000], np.arange(start, start + 1000))
        part.save(tmp_path / str(start))
        parts.append(tmp_path / str(start))
    index.merge_on_disk(parts, tmp_path / "disk")
    one = FaissIndex.load(tmp_path / "trained", writable=True)
    one.add(keys)
    assert_same(FaissIndex.load(tmp_path / "disk").search(keys[::70], 9), one.search(keys[::70], 9))

"""Indexes beside each other, in parts, larger than the memory they may take, and killed while they are built."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from killed_build import add_index as add_index_in_a_process
from number_stores import store_of_keys

import knn_seq.index.base
import knn_seq.index.budget as budget
from knn_seq.build.index import add_index
from knn_seq.datastore import Datastore
from knn_seq.errors import KnnSeqError
from knn_seq.index import INDEXES, open_index
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder

ENTRIES, DIMENSION = 20_000, 16


@pytest.fixture(scope="module")
def keys():
    random = np.random.default_rng(0)
    centres = 3 * random.standard_normal((40, DIMENSION))
    return (centres[random.integers(40, size=ENTRIES)] + random.standard_normal((ENTRIES, DIMENSION))).astype("f2")


@pytest.fixture
def store(tmp_path, number_store, keys):
    return store_of_keys(tmp_path / "store", number_store, keys)


def searched(store: DatastoreFolder, name: str):
    fresh = DatastoreFolder(store.path)
    return open_index(fresh, name).search(fresh.keys[::300], 8)


def shared(one, other) -> float:
    """The share of entries that both searches found."""
    return (one.ids.unsqueeze(2) == other.ids.unsqueeze(1)).any(2).float().mean().item()


@pytest.mark.parametrize(
    "recipe", ["Flat", "IVF16,Flat", "PCA8,IVF16,PQ4x4fs,Refine(keys)", "OPQ4,IVF16_HNSW8,PQ4x4", "HNSW32", "usearch"]
)
@pytest.mark.parametrize("part_entries", [3000, 8192])
def test_an_index_in_parts_is_the_index_in_one(store, recipe, part_entries, monkeypatch):
    add_index(store.path, BuildSettings(index_recipe=recipe), "one")
    monkeypatch.setattr(budget, "PART_ENTRIES", part_entries)
    add_index(store.path, BuildSettings(index_recipe=recipe), "parts")
    add_index(store.path, BuildSettings(index_recipe="torch"), "exact")
    one, parts, exact = (searched(store, name) for name in ("one", "parts", "exact"))
    graph = recipe in ("HNSW32", "usearch")  # which is not the same every time
    assert shared(parts, exact) > shared(one, exact) - 0.03 if graph else shared(parts, one) > 0.98
    assert sorted(path.name for path in (store.path / "index").iterdir()) == ["default", "exact", "one", "parts"]


@pytest.mark.parametrize(
    ("recipe", "memory"),
    [("IVF16,Flat", "1MB"), ("PCA8,IVF16,SQ8", "300kB"), ("IVF16,PQ4x4,Refine(keys)", "200kB")],
)
def test_lists_that_are_larger_than_the_memory_stay_on_the_disk(store, recipe, memory, monkeypatch, capfd):
    monkeypatch.setattr(knn_seq.index.base, "TRAINING_COPIES", 1e-6)  # so that both are trained on the same sample
    add_index(store.path, BuildSettings(index_recipe=recipe), "memory")
    add_index(store.path, BuildSettings(index_recipe=recipe, memory_limit=memory), "disk")
    assert (store.path / "index" / "disk" / "lists.ivfdata").exists()
    assert not (store.path / "index" / "memory" / "lists.ivfdata").exists()
    near, there = searched(store, "memory"), searched(store, "disk")
    assert shared(near, there) > 0.98
    assert capfd.readouterr().out == ""  # where translations go
    index = open_index(DatastoreFolder(store.path), "disk")
    assert index.memory < 40_000
    with pytest.raises(KnnSeqError, match="cannot grow"):
        index.add(np.zeros((1, DIMENSION), np.float32))


def test_a_datastore_that_moved_finds_its_lists(store, tmp_path):
    add_index(store.path, BuildSettings(index_recipe="IVF16,Flat", memory_limit="1MB"), "disk")
    before = searched(store, "disk")
    moved = store.path.rename(tmp_path / "moved")
    assert (searched(DatastoreFolder(moved), "disk").ids == before.ids).all()


def test_lists_that_were_cut_are_refused(store):
    add_index(store.path, BuildSettings(index_recipe="IVF16,Flat", memory_limit="1MB"), "disk")
    lists = store.path / "index" / "disk" / "lists.ivfdata"
    with lists.open("r+b") as file:
        file.truncate(lists.stat().st_size // 2)
    with pytest.raises(KnnSeqError, match=r"lists.ivfdata is damaged or missing"):
        searched(store, "disk")


@pytest.mark.parametrize("recipe", ["Flat", "IVF16,PQ8x4fs", "HNSW32"])
def test_what_has_to_lie_in_memory_and_is_too_large_is_refused(store, recipe):
    with pytest.raises(KnnSeqError, match=f"'{recipe}' of 20,000 keys takes about .* allow more"):
        add_index(store.path, BuildSettings(index_recipe=recipe, memory_limit="100kB"))
    assert sorted(path.name for path in (store.path / "index").iterdir()) == ["default"]


def test_an_index_is_called_after_its_recipe_and_becomes_the_default_when_asked(store):
    assert add_index(store.path, BuildSettings(index_recipe="IVF16,Flat")) == "IVF16,Flat"
    assert DatastoreFolder(store.path).manifest.default_index == "default"
    add_index(store.path, BuildSettings(index_recipe="IVF16,Flat"), as_default=True)
    assert DatastoreFolder(store.path).manifest.default_index == "IVF16,Flat"
    assert add_index(store.path, BuildSettings()) == "Flat"


def test_a_failed_replacement_leaves_the_index_that_was_there(store):
    add_index(store.path, BuildSettings(index_recipe="IVF16,Flat"), "mine")
    before = searched(store, "mine")
    with pytest.raises(KnnSeqError, match="needs at least"):
        add_index(store.path, BuildSettings(index_recipe="IVF30000,Flat"), "mine")
    assert (searched(store, "mine").ids == before.ids).all()


def test_an_unfinished_datastore_is_not_indexed(tmp_path):
    with pytest.raises(KnnSeqError, match="is not a datastore"):
        add_index(tmp_path / "nothing", BuildSettings())


PLACES = [
    ("knn_seq.index.base/SearchIndex:train_on_sample", 1),
    ("knn_seq.index.faiss/FaissIndex:save", 1),
    ("knn_seq.index.faiss/FaissIndex:save", 3),
    ("knn_seq.index.faiss/FaissIndex:add", 4),
    ("knn_seq.storage.replacement/Replacement:publish", 1),
    ("knn_seq.storage.replacement:publish_folder", 1),
    *(("knn_seq.storage.atomic:_fsync", count) for count in (1, 7, 12, 17)),
]


@pytest.mark.parametrize(
    ("recipe", "memory"), [("PCA8,IVF16,SQ8", "1GB"), ("IVF16,Flat", "1MB"), ("IVF16,PQ4x4fs", "1GB")]
)
@pytest.mark.parametrize(("place", "count"), PLACES, ids=lambda value: str(value).rsplit(":")[-1])
def test_a_killed_index_resumes(store, recipe, memory, place, count):
    add_index(store.path, BuildSettings(index_recipe=recipe, memory_limit=memory), "new")
    wanted = searched(store, "new")
    killed = add_index_in_a_process(store.path, recipe, memory, 5000, place, count)
    assert killed == -signal.SIGKILL
    assert add_index_in_a_process(store.path, recipe, memory, 5000) == 0
    assert shared(searched(store, "new"), wanted) > 0.98
    assert sorted(path.name for path in (store.path / "index").iterdir()) == ["default", "new.2"]


def test_what_was_saved_is_not_done_again(store, monkeypatch):
    assert add_index_in_a_process(store.path, "IVF16,SQ8", "1GB", 5000, "knn_seq.index.faiss/FaissIndex:save", 4) < 0
    monkeypatch.setattr(budget, "PART_ENTRIES", 5000)
    added = []
    cls = INDEXES.get("faiss")
    add = cls.add
    monkeypatch.setattr(cls, "add", lambda self, keys, ids=None: (added.append(len(keys)), add(self, keys, ids))[1])
    monkeypatch.setattr(cls, "train", lambda self, sample: pytest.fail("trained again"))
    add_index(store.path, BuildSettings(index_recipe="IVF16,SQ8", memory_limit="1GB"), "new")
    assert sum(added) == 10_000  # two of four parts were saved


@pytest.mark.parametrize("recipe", ["IVF16,SQ8", "IVF16,PQ4x4fs"])
def test_parts_of_any_size_are_resumed(store, recipe, monkeypatch):
    """A large file is mapped when it is opened for searching; a build has to change it."""
    monkeypatch.setattr("knn_seq.index.faiss.MAPPED_BYTES", 1)
    assert add_index_in_a_process(store.path, recipe, "1GB", 5000, "knn_seq.index.faiss/FaissIndex:save", 3) < 0
    monkeypatch.setattr(budget, "PART_ENTRIES", 5000)
    add_index(store.path, BuildSettings(index_recipe=recipe, memory_limit="1GB"), "new")
    index = open_index(DatastoreFolder(store.path), "new")
    assert len(index) == ENTRIES
    with pytest.raises(KnnSeqError, match="mapped from disk cannot grow"):
        index.add(np.zeros((1, DIMENSION), np.float32))


def test_memory_stays_under_the_budget(tmp_path, number_store):
    random = np.random.default_rng(0)
    keys = random.standard_normal((1_000_000, 64), dtype=np.float32).astype(np.float16)
    store = store_of_keys(tmp_path / "store", number_store, keys)
    del keys
    budget = 100_000_000  # the lists take 264 MB
    queue = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=_peak, args=(store.path, budget, queue))
    process.start()
    peak = queue.get(timeout=600)
    process.join()
    assert process.exitcode == 0
    assert (store.path / "index" / "new" / "lists.ivfdata").stat().st_size > 2 * budget
    assert peak < budget
    shutil.rmtree(store.path)


def _peak(path: Path, budget: int, queue) -> None:
    """The most memory that the process takes for itself beyond what it has at the start; mapped files do not count."""
    from knn_seq.index.faiss import FaissIndex

    warm = np.random.default_rng(0).standard_normal((2000, 64), dtype=np.float32)
    FaissIndex.build(warm, "IVF16,Flat").search(warm[:5], 3)
    before, highest, stop = _own_memory(), [0], threading.Event()

    def watch():
        while not stop.wait(0.002):
            highest[0] = max(highest[0], _own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    add_index(path, BuildSettings(index_recipe="IVF256,Flat", memory_limit=budget), "new")
    stop.set()
    watcher.join()
    queue.put(highest[0] - before)


def _own_memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
    raise AssertionError("no RssAnon")


def test_a_translator_takes_the_index_that_is_named(number_store, tmp_path):
    copied = tmp_path / "store"
    shutil.copytree(number_store.path, copied)
    add_index(copied, BuildSettings(index_recipe="torch"), "exact")
    add_index(copied, BuildSettings(index_recipe="IVF4,Flat,Refine(keys)"), "lists")
    from knn_seq import Translator

    translator = Translator(Datastore(copied), beam_size=1)
    wanted = translator.translate(["1 2 3"])
    assert translator.translate(["1 2 3"], index="exact") == wanted
    assert translator.translate(["1 2 3"], index="lists", index_options={"nprobe": 4}) == wanted

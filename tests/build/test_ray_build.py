"""Builds on Ray: the same datastore as this process makes alone, whoever is killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from number_stores import store_of_keys
from tiny_models import number_line

import knn_seq.build.keys as keys_step
import knn_seq.index.budget as budget
from knn_seq import Datastore
from knn_seq.build import build_datastore
from knn_seq.build.index import add_index
from knn_seq.corpus import open_corpus
from knn_seq.errors import KnnSeqError, ModelMismatch
from knn_seq.index import open_index
from knn_seq.models import load_model
from knn_seq.settings import BuildSettings, ModelSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.flat import open_flat

ray = pytest.importorskip("ray", reason="LOUD: Ray is not installed, so builds on a cluster are not tested")

SETTINGS = {
    "index_recipe": "Flat",
    "shard_tokens": 1500,
    "batch_tokens": 200,
    "calibration_sentences": 0,
    "combiner": "fixed",
}


@pytest.fixture(scope="module")
def cluster():
    """One Ray for all tests; engines use it and leave it running."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("ray-corpus") / "train.tsv"
    generator = np.random.default_rng(3)
    path.write_text("".join(number_line(generator) for _ in range(3000)))
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, save_model, corpus):
    """What this process makes alone, with sentence vectors."""
    path = tmp_path_factory.mktemp("local") / "store"
    return Datastore.build(path, save_model(), corpus, sentence_search="encoder", **SETTINGS)


def marks(store: Path) -> dict[str, int]:
    """When each shard was finished."""
    return {path.parent.name: path.stat().st_mtime_ns for path in store.glob("segments/1/keys.shards/*/finished.json")}


@pytest.fixture
def finished(monkeypatch):
    """When each shard of the builds of a test was finished, as it is just before the keys are published."""
    seen = {}
    finish = keys_step._finish_shards

    def spy(pieces, writer, vectors):
        seen.update(marks(pieces[0].path.parent.parent))
        finish(pieces, writer, vectors)

    monkeypatch.setattr(keys_step, "_finish_shards", spy)
    return seen


def assert_same(got: Datastore, wanted: Datastore) -> None:
    of_segment = (f"segments/1/{each}.h5" for each in ("values", "sources", "corpus", "pairs", "keys"))
    for name in (*of_segment, "vectors/sentences.h5"):
        ours, theirs = open_flat(got.path / name), open_flat(wanted.path / name)
        assert ours.keys() == theirs.keys()
        for dataset in ours:
            np.testing.assert_array_equal(ours[dataset], theirs[dataset], err_msg=f"{name} {dataset}")
    assert got.manifest.to_dict() == wanted.manifest.to_dict()
    assert {path.name for path in got.path.rglob("*")} == {path.name for path in wanted.path.rglob("*")}
    queries = wanted.keys[::97].astype(np.float32)
    near, there = (open_index(store).search(queries, 8) for store in (got, wanted))
    assert (near.ids == there.ids).all()
    assert (near.distances == there.distances).all()


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_makes_the_same_datastore(
    workers, cluster, undisturbed, corpus, save_model, tmp_path, monkeypatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # workers live elsewhere: paths must mean the same there
    options = {"engine": "ray", "workers": workers, "sentence_search": "encoder"}
    store = Datastore.build("../store", save_model(), corpus, **options, **SETTINGS)
    assert_same(store, undisturbed)


@pytest.fixture
def killed_worker():
    """Kills a worker that is in the middle of a shard while another one has finished one."""
    threads, stop = [], threading.Event()

    def watch(store: Path, result: dict) -> None:
        while not stop.wait(0.002):
            started = [path.parent for path in store.glob("segments/1/keys.shards/*/progress.json")]
            working = [shard for shard in started if not (shard / "finished.json").exists()]
            if marks(store) and working:
                result["finished"] = marks(store)
                result["pid"] = int((working[-1] / ".lock").read_text().split()[1])
                os.kill(result["pid"], signal.SIGKILL)
                return

    def start(store: Path) -> dict:
        result = {}
        threads.append(threading.Thread(target=watch, args=(store, result)))
        threads[0].start()
        return result

    yield start
    stop.set()
    for thread in threads:
        thread.join()


def test_a_killed_worker_costs_its_last_batches(
    cluster, killed_worker, finished, undisturbed, corpus, save_model, tmp_path
):
    killed = killed_worker(tmp_path / "store")
    options = {"engine": "ray", "workers": 2, "sentence_search": "encoder", "checkpoint_seconds": 0}
    store = Datastore.build(tmp_path / "store", save_model(), corpus, **SETTINGS, **options)
    assert killed["pid"] != os.getpid()
    assert not Path(f"/proc/{killed['pid']}").exists()
    assert killed["finished"].items() <= finished.items()  # they were not done again
    assert len(finished) > len(killed["finished"])
    store.manifest.build.checkpoint_seconds = undisturbed.manifest.build.checkpoint_seconds
    assert_same(store, undisturbed)


def test_a_killed_driver_is_resumed(cluster, finished, undisturbed, corpus, save_model, tmp_path):
    """The driver has a Ray of its own, which must end with it; the build resumes, on Ray or without."""
    store = tmp_path / "store"
    options = ["--index-recipe", "Flat", "--shard-tokens", 1500, "--batch-tokens", 200, "--sentence-search", "encoder"]
    options += ["--combiner", "fixed"]
    command = ["build", store, "--model", save_model(), "--corpus", corpus, "--engine", "ray", "--workers", 2, *options]
    command = [sys.executable, "-m", "knn_seq.cli.main", *map(str, command)]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["KNN_SEQ_TEST"] = str(tmp_path)
    driver = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        while not marks(store):
            assert driver.poll() is None, "the build ended before it was killed"
            time.sleep(0.005)
    finally:
        driver.kill()
        driver.wait()
    before = marks(store)
    assert not (store / "segments/1/keys.h5").exists()
    for copy in ("copy", "other copy"):
        # A worker that outlives its driver for a moment may be writing one of these.
        shutil.copytree(store, tmp_path / copy, ignore=shutil.ignore_patterns("*.json.partial"))
    for path, engine in ((store, {"engine": "ray", "workers": 2}), (tmp_path / "copy", {"engine": "local"})):
        finished.clear()
        settings = {**SETTINGS, "calibration_sentences": 256, "sentence_search": "encoder", **engine}
        Datastore.build(path, save_model(), corpus, **settings)
        assert before.items() <= finished.items()
    command[4] = str(tmp_path / "other copy")  # which the same command completes, again with a Ray of its own
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 0
    for path in (store, tmp_path / "copy", tmp_path / "other copy"):
        got = Datastore(path)
        got.manifest.build.calibration_sentences, got.manifest.defaults = 0, undisturbed.manifest.defaults
        got.manifest.tuned = undisturbed.manifest.tuned
        assert_same(got, undisturbed)
    last = time.monotonic() + 60
    while left := processes_with(str(tmp_path)):
        assert time.monotonic() < last, f"processes of the killed driver live on: {left}"
        time.sleep(0.1)


def processes_with(mark: str) -> list[str]:
    """Processes that inherited the mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"KNN_SEQ_TEST={mark}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_parts_that_workers_filled_are_the_index_built_at_once(cluster, number_store, tmp_path, monkeypatch):
    keys = np.random.default_rng(0).standard_normal((20_000, 16)).astype(np.float16)
    store = store_of_keys(tmp_path / "store", number_store, keys)
    recipes = {"refined": "PCA8,IVF16,PQ4x4fsr,Refine(keys)", "quantized": "IVF16,SQ8"}
    for name, recipe in recipes.items():
        add_index(store.path, BuildSettings(index_recipe=recipe), f"{name}-at-once")
    monkeypatch.setattr(budget, "PART_ENTRIES", 3000)
    for name, recipe in recipes.items():
        add_index(store.path, BuildSettings(index_recipe=recipe, engine="ray", workers=2), f"{name}-in-parts")
        folders = [store.path / "index" / f"{name}-{how}" for how in ("at-once", "in-parts")]
        one, other = ((folder / "index.faiss").read_bytes() for folder in folders)
        assert one == other, recipe
    assert not list((store.path / "index").glob(".*"))


def test_a_model_that_workers_cannot_see_is_named(cluster, corpus, save_model, tmp_path):
    shutil.copytree(save_model(), tmp_path / "model")
    model = load_model(ModelSettings(str(tmp_path / "model")))
    shutil.move(tmp_path / "model", tmp_path / "moved")
    settings = BuildSettings(engine="ray", workers=1, **SETTINGS)
    with pytest.raises(KnnSeqError, match=str(tmp_path / "model")):
        build_datastore(tmp_path / "store", model, open_corpus(corpus), settings)
    shutil.copytree(save_model("marian", 1), tmp_path / "model")
    with pytest.raises(ModelMismatch, match="is another one than where the build was started"):
        build_datastore(tmp_path / "store", model, open_corpus(corpus), settings)
    assert DatastoreFolder(tmp_path / "store").manifest.unfinished_step() == "keys"


def test_no_worker_lives_longer_than_its_build(cluster):
    last = time.monotonic() + 30
    while cluster.available_resources().get("CPU") != cluster.cluster_resources()["CPU"]:
        assert time.monotonic() < last, "workers hold CPUs after their build"
        time.sleep(0.1)

"""Who does the work: what needs no Ray that runs."""

from __future__ import annotations

import socket
import sys
import threading

import numpy as np
import pytest

from knn_seq import Datastore, KnnSeqError
from knn_seq.build.engine import ENGINES
from knn_seq.build.engine.base import PieceProgress
from knn_seq.build.engine.home import HandOver, Home, Substitute
from knn_seq.build.engine.local import LocalEngine, LocalWorker
from knn_seq.build.engine.ray import Share, allocate_workers
from knn_seq.build.keys import ShardKeys
from knn_seq.settings import BuildSettings

NODES = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}, {"memory": 1e9}]


@pytest.mark.parametrize(
    ("nodes", "workers", "gpus", "on_cpu", "expected"),
    [
        ([{"CPU": 2.0}], None, None, False, Share(1, 2, 0)),
        ([{"CPU": 2.0}], 2, None, False, Share(2, 1, 0)),
        ([{"CPU": 8.0}, {"CPU": 8.0}], None, None, False, Share(2, 8, 0)),
        ([{"CPU": 8.0}, {"CPU": 8.0}], 5, None, False, Share(5, 2, 0)),
        (NODES, None, None, False, Share(2, 4, 1)),
        (NODES, None, 0.5, False, Share(4, 2, 0.5)),
        (NODES, None, None, True, Share(2, 4, 0)),
        (NODES, 3, 0, False, Share(3, 4, 0)),
    ],
)
def test_the_cores_of_a_node_are_shared_among_its_workers(nodes, workers, gpus, on_cpu, expected):
    assert allocate_workers(nodes, workers, gpus, on_cpu) == expected


@pytest.mark.parametrize(("workers", "gpus"), [(13, 0), (3, 1), (None, 3)])
def test_more_workers_than_there_is_room_for_are_refused(workers, gpus):
    with pytest.raises(KnnSeqError, match="has room for"):
        allocate_workers(NODES, workers, gpus)


def test_what_goes_wrong_at_home_is_raised_where_it_is_waited_for():
    stopped = threading.Event()

    def fail():
        raise KnnSeqError("no room")

    home = Home(fail, stopped.set)
    with pytest.raises(KnnSeqError, match="no room"):
        home.started()
    home.end()
    assert stopped.is_set()


def test_a_home_stays_until_it_is_let_go():
    """Processes that it started would be killed with its thread."""
    done, go = [], threading.Event()
    home = Home(lambda: (go.wait(), done.append(threading.current_thread())), lambda: done.append(home._thread))
    assert not home.started(0)
    go.set()
    assert home.started()
    assert done == [home._thread]
    assert home._thread.is_alive()
    home.leave()
    home.end()
    assert done == [home._thread] * 2
    assert not home._thread.is_alive()


def test_work_that_was_begun_here_is_handed_over(save_model, number_corpus, tmp_path, monkeypatch):
    """What this process has computed until then is kept, and the rest makes the same keys."""
    settings = {"index": "Flat", "batch_tokens": 100, "calibration_sentences": 0, "quiet": True}
    undisturbed = Datastore.build(tmp_path / "undisturbed", save_model(), number_corpus, **settings)
    run, computed, kept = LocalEngine.run, [], []

    def interrupted(engine, pieces, progress):
        if isinstance(pieces[0], ShardKeys):
            worker = Substitute(engine.model, PieceProgress(pieces, progress), 0, lambda: len(computed) == 3)
            monkeypatch.setattr(LocalWorker, "report", lambda self, done: computed.append(done))
            with pytest.raises(HandOver):
                pieces[0].run(worker)
            monkeypatch.undo()
            kept.append(pieces[0].done())
        run(engine, pieces, progress)

    monkeypatch.setattr(LocalEngine, "run", interrupted)
    store = Datastore.build(tmp_path / "store", save_model(), number_corpus, **settings)
    assert kept == [computed[2]]
    assert 0 < kept[0] < len(store)
    np.testing.assert_array_equal(store.keys, undisturbed.keys)


def test_engines_are_found_by_name():
    assert {"local", "ray"} <= set(ENGINES.names())
    with pytest.raises(KnnSeqError, match=r"'slurm': choose from .*local, ray"):
        ENGINES.get("slurm")


@pytest.mark.parametrize("setting", ["workers", "shard_tokens", "batch_tokens", "gpus_per_worker"])
def test_settings_that_make_no_sense_are_refused(setting):
    with pytest.raises(KnnSeqError, match=f"{setting.replace('_', '-').capitalize()} must be at least"):
        BuildSettings(**{setting: -1})


def test_a_missing_ray_is_named(save_model, number_corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(KnnSeqError, match=r"pip install knn-seq\[ray\]"):
        Datastore.build(tmp_path / "store", save_model(), number_corpus, engine="ray", quiet=True)


def test_an_engine_leaves_no_trace_in_the_datastore(number_store):
    assert not {"engine", "workers", "ray_address", "gpus_per_worker"} & set(number_store.manifest.build)


@pytest.fixture
def not_ray():
    """The address of a server that is not Ray's."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"220 mail.example.org ready\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_an_address_without_a_cluster_is_refused(knn_seq, save_model, number_corpus, tmp_path, not_ray):
    pytest.importorskip("ray", reason="LOUD: Ray is not installed, so its addresses are not tested")
    build = ["build", tmp_path / "store", "--model", save_model(), "--corpus", number_corpus, "--engine", "ray", "-q"]
    for address in (not_ray, "127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"):
        code, output, errors = knn_seq(*build, "--ray-address", address)
        assert (code, output) == (2, "")
        assert errors.startswith(f"knn-seq: No Ray cluster answers at '{address}'")
        assert errors.count("\n") == 1

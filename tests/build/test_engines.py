"""Engines: what can be tested without a running Ray."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

from knn_seq import Datastore
from knn_seq.build.engine import ENGINES
from knn_seq.build.engine.cluster import Allocation, allocate_workers
from knn_seq.errors import InvalidSetting, MissingLibrary
from knn_seq.settings import BuildSettings

NODES = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}, {"memory": 1e9}]


@pytest.mark.parametrize(
    ("nodes", "workers", "gpus", "on_cpu", "expected"),
    [
        ([{"CPU": 2.0}], None, None, False, Allocation(1, 2, 0)),
        ([{"CPU": 2.0}], 2, None, False, Allocation(2, 1, 0)),
        ([{"CPU": 8.0}, {"CPU": 8.0}], None, None, False, Allocation(2, 8, 0)),
        ([{"CPU": 8.0}, {"CPU": 8.0}], 5, None, False, Allocation(5, 2, 0)),
        (NODES, None, None, False, Allocation(2, 4, 1)),
        (NODES, None, 0.5, False, Allocation(4, 2, 0.5)),
        (NODES, None, None, True, Allocation(2, 4, 0)),
        (NODES, 3, 0, False, Allocation(3, 4, 0)),
    ],
)
def test_the_cpus_of_a_node_are_divided_among_its_workers(nodes, workers, gpus, on_cpu, expected):
    assert allocate_workers(nodes, workers, gpus, on_cpu) == expected


@pytest.mark.parametrize(("workers", "gpus"), [(13, 0), (3, 1), (None, 3)])
def test_more_workers_than_the_cluster_can_run_are_refused(workers, gpus):
    with pytest.raises(InvalidSetting, match="can run"):
        allocate_workers(NODES, workers, gpus)


def test_engines_are_found_by_name():
    assert {"local", "ray"} <= set(ENGINES.names())
    with pytest.raises(InvalidSetting, match=r"'slurm': choose from .*local, ray"):
        ENGINES.get("slurm")


@pytest.mark.parametrize("setting", ["workers", "shard_tokens", "batch_tokens", "gpus_per_worker"])
def test_settings_below_their_minimum_are_refused(setting):
    with pytest.raises(InvalidSetting, match=f"{setting.replace('_', '-').capitalize()} must be at least"):
        BuildSettings(**{setting: -1})


def test_a_missing_ray_is_named(save_model, number_corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingLibrary, match=r"pip install knn-seq\[ray\]"):
        Datastore.build(tmp_path / "store", save_model(), number_corpus, engine="ray")


def test_an_engine_leaves_no_trace_in_the_datastore(number_store):
    assert not {"engine", "workers", "ray_address", "gpus_per_worker"} & set(number_store.manifest.build.to_dict())


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
    assert not list((tmp_path / "store").rglob("*.h5*"))  # it fails before it does any work

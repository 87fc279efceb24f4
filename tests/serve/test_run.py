from __future__ import annotations

import os
import socket

import pytest

from knn_seq.errors import InvalidSetting
from knn_seq.serve.run import THREADS, worker_environment
from knn_seq.serve.settings import ServerSettings
from knn_seq.serve.shared_port import bound_socket


@pytest.mark.parametrize(("workers", "threads"), [(1, "6"), (2, "3"), (4, "1"), (9, "1")])
def test_worker_processes_share_the_cores(monkeypatch, tmp_path, workers, threads):
    monkeypatch.delenv(THREADS, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    told = worker_environment({"a": tmp_path}, ServerSettings(workers=workers), tmp_path)
    assert told[THREADS] == threads


def test_threads_that_the_user_has_chosen_stay(monkeypatch, tmp_path):
    monkeypatch.setenv(THREADS, "5")
    assert THREADS not in worker_environment({"a": tmp_path}, ServerSettings(workers=2), tmp_path)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_port_that_is_taken_is_refused(processes):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSetting, match=f"Cannot listen at 127.0.0.1, port {port}: Address already in use"):
            bound_socket("127.0.0.1", port, processes)


def test_another_server_with_worker_processes_is_refused():
    with bound_socket("127.0.0.1", 0, 2) as first:
        first.listen()
        with pytest.raises(InvalidSetting, match="Address already in use"):
            bound_socket("127.0.0.1", first.getsockname()[1], 2)

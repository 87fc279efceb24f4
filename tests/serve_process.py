"""A server in a process of its own, as the command line starts it."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import httpx
import transformers.models.marian.modeling_marian
import transformers.models.marian.tokenization_marian  # noqa: F401

from knn_seq.cli.main import main

# A server that has imported everything forks each of ours: a new interpreter for each would take seconds.
FORKS = multiprocessing.get_context("forkserver")


class ServerProcess:
    """`knn-seq serve` with these arguments; a context manager behind which it has ended.

    Args:
        arguments: Of the command.
        log: Where its output goes.
        port: The port; None: a free one.
    """

    def __init__(self, arguments, log: Path, port: int | None = None) -> None:
        start_forkserver()
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        told = [*map(str, arguments), "--port", str(self.port)]
        self.process = FORKS.Process(target=run, args=(told, str(log)))
        self.process.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        for _ in range(1200):
            try:
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                assert self.process.is_alive(), self.log.read_text()
                time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; returns the exit code."""
        os.kill(self.process.pid, number)
        self.process.join(60)
        return self.process.exitcode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.is_alive():
            self.stop(signal.SIGKILL)


def run(arguments: list[str], log: str) -> None:
    """In the new process: the command, its output in a file."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # worker processes are given it
    sys.stdin = os.fdopen(0)
    tempfile.tempdir = os.path.dirname(log)  # what a killed server leaves goes where the test's own files go
    sys.exit(main(["serve", *arguments]))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@functools.cache
def start_forkserver() -> None:
    """The fork server finds this module only through the environment."""
    FORKS.set_forkserver_preload(["serve_process"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before

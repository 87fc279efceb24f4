"""A Milvus server of its own for the tests, from the PyPI package `milvus`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
import warnings
from pathlib import Path

import pytest

USER = "root:Milvus"  # the one that a new server knows
START_SECONDS = 90
# Small, and in a hurry: what waits for the next look waits seconds by default.
SETTINGS = {
    "queryCoord.checkInterval": 100,
    "queryCoord.distPullInterval": 100,
    "queryCoord.checkHandoffInterval": 500,
    "common.session.ttl": 3,  # seconds until a killed server is forgotten, so that it may start again
    "log.level": "error",
}


class LocalMilvus:
    """A server on loopback, with its data in a folder; it asks for a password.

    Args:
        folder: The server's; it is made, and deleted by `stop`.
        unpacked: Where the program is unpacked, which takes ten seconds, or was unpacked by an earlier run.
    """

    def __init__(self, folder: Path, unpacked: Path) -> None:
        from milvus import MilvusServerConfig, _initialize_data_files

        self.folder, self._program = folder, unpacked / "bin" / "milvus"
        config = MilvusServerConfig(data_dir=str(folder))
        # Its own ports: by default it would take those of another server that listens on another interface.
        config.update(**{name: _free_port() for name in config.configurable_items if name.endswith("_port")})
        config.set("authorization_enabled", True)
        for name, value in SETTINGS.items():
            config.set(name, value)
        config.resolve()
        _initialize_data_files(str(unpacked))
        self.address = f"http://127.0.0.1:{config.get('proxy_port')}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, also again after `kill`, and wait until it can be used."""
        health = _free_port()
        environment = {
            **os.environ,
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(health),
            "MILVUS_RUN_DIR": str(self.folder / "run"),
            "LD_LIBRARY_PATH": str(self._program.parent),
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
        }
        with open(self.folder / "output.log", "ab") as log:
            self._process = subprocess.Popen(
                [str(self._program), "run", "standalone"], cwd=self.folder, env=environment, stdout=log, stderr=log
            )
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{health}/healthz", timeout=5) as answer:
                    if b"OK" in answer.read():
                        return
            except OSError:
                pass
            time.sleep(0.2)
        code = self._process.poll()
        raise RuntimeError("it takes too long to start" if code is None else f"it ended with code {code} at its start")

    def kill(self) -> None:
        """End it at once, as a power failure would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it and delete its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_or_skip(folder: Path, unpacked: Path) -> LocalMilvus:
    """A running server; where there cannot be one, tests are skipped, and the summary of the run says so."""
    server = None
    try:
        server = LocalMilvus(folder, unpacked)
        server.start()
    except BaseException as error:
        if server is not None:
            server.stop()
        if not isinstance(error, (ImportError, OSError, RuntimeError)):
            raise
        reason = f"NOT TESTED against a Milvus server, for there is none: {error} (pip install milvus==2.3.5)"
        warnings.warn(reason, stacklevel=2)
        pytest.skip(reason)
    return server


def free_address() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{_free_port()}"


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])

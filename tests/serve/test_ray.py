"""Replicas of Ray Serve: one that is killed under load is replaced, and its requests are asked again."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import httpx
from serve_process import ServerProcess


def test_a_killed_replica_costs_no_request(language_store, tmp_path):
    shutil.copytree(language_store, tmp_path / "store")
    arguments = [f"numbers={tmp_path / 'store'}", "--engine", "ray", "--workers", "2"]
    with ServerProcess(arguments, tmp_path / "log") as server:
        statuses, ended = [], threading.Event()

        def ask():
            while not ended.is_set():
                body = {"q": f"{5 + len(statuses) % 50} 7 9", "source": "pt", "target": "en"}
                statuses.append(httpx.post(f"{server.url}/translate", json=body, timeout=60).status_code)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(statuses) >= 10)
        before = replicas(server.process.pid)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        count = len(statuses)
        wait_for(lambda: len(statuses) >= count + 20)
        wait_for(lambda: len(set(replicas(server.process.pid)) - {before[0]}) == 2)
        ended.set()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200}
        pair = {"pairs": [{"source": "30 31 32", "target": "50 51"}]}
        assert httpx.put(f"{server.url}/v1/stores/numbers/memory", json=pair, timeout=60).status_code == 200
        for _ in range(4):  # whichever replica is asked
            body = {"q": "30 31 32", "source": "pt", "target": "en"}
            answer = httpx.post(f"{server.url}/translate", json=body, timeout=60)
            assert answer.json() == {"translatedText": "50 51"}
        assert answer.headers["Content-Security-Policy"]
        assert server.stop() == 0


def wait_for(condition) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("It took too long.")


def replicas(pid: int) -> list[int]:
    """The processes below this one that are replicas."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            if "ServeReplica" in Path(f"/proc/{child}/cmdline").read_text():
                found.append(int(child))
            found += replicas(int(child))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return sorted(found)

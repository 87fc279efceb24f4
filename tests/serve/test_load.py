"""Keys, limits, turns, cancellation, and the end of a server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from serve_process import ServerProcess

from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.serve.access import Access, KeyFile
from knn_seq.serve.queue import QueueFull, Stopping, TranslationQueue
from knn_seq.serve.settings import ServerSettings

SOURCE = {"q": "5 7 9 11", "source": "pt", "target": "en"}
STORE = "/v1/stores/numbers"


class FakeTranslator:
    """Notes the batches that it is given, each of which it may begin only when it is let."""

    model = None

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.turns = threading.Semaphore(0)

    def translate(self, texts, **options):
        self.batches.append(list(texts))
        self.turns.acquire()
        if "bad" in texts:
            raise KnnSeqError("No.")
        return [text.upper() for text in texts]


def run_queue(test, batch_size=4, size=100):
    translator = FakeTranslator()
    queue = TranslationQueue(translator, batch_size, size)
    try:
        asyncio.run(test(queue, translator))
    finally:
        for _ in range(100):
            translator.turns.release()
        queue.stop(10)


async def begun(translator, batches):
    while len(translator.batches) < batches:
        await asyncio.sleep(0.001)


def test_a_short_text_does_not_wait_for_all_of_a_long_one():
    async def test(queue, translator):
        long = asyncio.ensure_future(queue.translate([f"a{i}" for i in range(12)], {}))
        await begun(translator, 1)
        short = asyncio.ensure_future(queue.translate(["b"], {}))
        await asyncio.sleep(0)
        translator.turns.release()
        translator.turns.release()
        assert await short == ["B"]
        assert not long.done()
        for _ in range(4):
            translator.turns.release()
        assert await long == [f"A{i}" for i in range(12)]
        assert "b" in translator.batches[1]

    run_queue(test)


def test_requests_of_equal_settings_are_translated_together_and_others_are_not():
    async def test(queue, translator):
        first = asyncio.ensure_future(queue.translate(["x"], {}))
        await begun(translator, 1)
        rest = [asyncio.ensure_future(queue.translate([text], {"k": k})) for text, k in (("a", 1), ("b", 2), ("c", 1))]
        await asyncio.sleep(0)
        for _ in range(3):
            translator.turns.release()
        await asyncio.gather(first, *rest)
        assert translator.batches == [["x"], ["a", "c"], ["b"]]

    run_queue(test)


def test_a_cancelled_request_leaves_the_queue_and_a_bad_one_fails_alone():
    async def test(queue, translator):
        first = asyncio.ensure_future(queue.translate(["x"], {}))
        await begun(translator, 1)
        gone = asyncio.ensure_future(queue.translate(["gone"] * 50, {}))
        bad = asyncio.ensure_future(queue.translate(["bad"], {"k": 1}))
        await asyncio.sleep(0)
        assert queue.waiting == 51
        gone.cancel()
        await asyncio.sleep(0)
        assert queue.waiting == 1
        for _ in range(3):
            translator.turns.release()
        assert await first == ["X"]
        with pytest.raises(KnnSeqError):
            await bad
        assert await queue.translate(["y"], {}) == ["Y"]
        assert not any("gone" in batch for batch in translator.batches)

    run_queue(test)


def test_a_full_queue_refuses_at_once_and_a_stopped_one_finishes_what_waits():
    async def test(queue, translator):
        first = asyncio.ensure_future(queue.translate(["x"], {}))
        await begun(translator, 1)
        waiting = asyncio.ensure_future(queue.translate(["a"] * 5, {}))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await queue.translate(["b"], {})
        stopping = asyncio.ensure_future(asyncio.to_thread(queue.stop, 10))
        await asyncio.sleep(0.01)
        with pytest.raises(Stopping):
            await queue.translate(["c"], {})
        for _ in range(3):
            translator.turns.release()
        assert (await first, await waiting) == (["X"], ["A"] * 5)
        await stopping

    run_queue(test, size=5)


def test_keys_are_needed_have_roles_and_are_nowhere_to_be_read(make_client, tmp_path, caplog):
    path = tmp_path / "keys.json"
    keys = {role: KeyFile(path).add(role, role) for role in ("translate", "edit", "admin")}
    client = make_client(api_keys=path)
    assert not any(key in path.read_text() for key in keys.values())
    assert path.stat().st_mode & 0o077 == 0
    assert client.post("/translate", json=SOURCE).status_code == 400
    wrong = client.post("/translate", json={**SOURCE, "api_key": "secret-guess"})
    assert wrong.status_code == 403
    assert "secret-guess" not in wrong.text
    assert client.post("/translate", params={"api_key": keys["admin"]}, data=SOURCE).status_code == 400
    assert client.post("/translate", json={**SOURCE, "api_key": keys["translate"]}).status_code == 200
    pair = {"pairs": [{"source": "5", "target": "6"}]}
    needed = {
        "translate": [("GET", "/memory", None), ("GET", "/glossary", None), ("GET", "/export", None)],
        "edit": [("POST", "/memory", pair), ("PUT", "/memory", pair), ("DELETE", "/memory/x", None),
                 ("POST", "/glossary", {"terms": [{"source": "5", "target": "6"}]})],
        "admin": [("DELETE", "/memory?corpus=none", None), ("POST", "/imports", None)],
    }  # fmt: skip
    order = list(needed)
    for role, requests in needed.items():
        for method, path_, body in requests:
            for own, key in keys.items():
                headers = {"Authorization": f"Bearer {key}"}
                status = client.request(method, f"{STORE}{path_}", json=body, headers=headers).status_code
                assert (status != 403) == (order.index(own) >= order.index(role)), (method, path_, own, status)
    assert client.get("/v1/stores").status_code == 400
    for path_ in ("/languages", "/health", "/frontend/settings", "/"):
        assert client.get(path_).status_code == 200
    KeyFile(path).remove("edit")
    assert client.post("/suggest", json={**SOURCE, "s": "5", "api_key": keys["edit"]}).status_code == 403
    assert not any(key in caplog.text for key in keys.values())


def test_a_key_has_a_rate_limit(tmp_path):
    keys = KeyFile(tmp_path / "keys.json")
    slow, fast = keys.add("slow", "translate", 2), keys.add("fast", "translate")
    access = Access(keys)
    for _ in range(2):
        access.check(slow, "translate")
    with pytest.raises(Exception, match="Slow down") as error:
        access.check(slow, "translate")
    assert error.value.status_code == 429
    assert 1 <= int(error.value.headers["Retry-After"]) <= 60
    for _ in range(100):
        access.check(fast, "translate")


def test_the_key_command_adds_lists_and_removes(knn_seq, tmp_path):
    path = tmp_path / "keys.json"
    code, out, _ = knn_seq("api-key", path, "add", "weblate", "--role", "edit", "--requests-a-minute", 30)
    assert code == 0
    assert KeyFile(path).find(out.strip()).role == "edit"
    assert knn_seq("api-key", path, "list")[:2] == (0, "weblate\tedit\t30 a minute\n")
    assert knn_seq("api-key", path, "add", "weblate")[0] == 2
    assert knn_seq("api-key", path, "remove", "weblate")[0] == 0
    assert knn_seq("api-key", path, "remove", "weblate")[0] == 2
    assert json.loads(path.read_text()) == {"keys": []}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org"])
def test_others_are_let_in_only_with_keys_or_if_that_is_meant(host, tmp_path):
    with pytest.raises(InvalidSetting, match="--api-keys"):
        ServerSettings(host=host)
    assert ServerSettings(host=host, open=True).host == host
    assert ServerSettings(host=host, api_keys=tmp_path).host == host
    assert ServerSettings(host="::1").host == "::1"


def test_a_folder_for_jobs_that_cannot_be_is_refused(language_store, tmp_path, knn_seq):
    (tmp_path / "file").touch()
    code, _, told = knn_seq("serve", language_store, "--jobs-folder", tmp_path / "file")
    assert code == 2
    assert f"No folder for jobs at {tmp_path / 'file'}" in told


def test_pages_of_other_servers_may_ask_only_if_configured(make_client):
    origin = {"Origin": "https://cat.example"}
    assert "access-control-allow-origin" not in make_client().get("/languages", headers=origin).headers
    client = make_client(cors_origins=("https://cat.example",))
    assert client.get("/languages", headers=origin).headers["access-control-allow-origin"] == "https://cat.example"
    other = client.get("/languages", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


def test_a_full_queue_is_503_with_retry_after(make_client):
    client = make_client(queue_size=1)
    answer = client.post("/translate", json={**SOURCE, "q": ["5 7", "6 8 9"]})
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert "busy" in answer.json()["error"]


def test_figures_for_prometheus(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        client.post("/translate", json={**SOURCE, "q": "17 23 5 9"})
        client.get("/some/path/of/a/client")
        text = client.get("/metrics").text
    for name in ("knn_seq_requests_total", "knn_seq_request_seconds_bucket", "knn_seq_queue_sentences",
                 "knn_seq_batch_sentences_bucket", "knn_seq_memory_pairs", "knn_seq_memory_entries"):  # fmt: skip
        assert name in text
    for part in ("model", "search", "combination"):
        assert f'knn_seq_decoding_seconds_total{{part="{part}",store="numbers"}}' in text
    assert "/some/path" not in text


def test_a_server_that_is_told_to_stop_finishes_what_runs_and_exits_with_0(language_store, tmp_path):
    shutil.copytree(language_store, tmp_path / "store")
    with ServerProcess([f"numbers={tmp_path / 'store'}"], tmp_path / "log") as server:
        answers = []

        def ask():
            texts = [f"{number} 7 9 11 13" for number in range(5, 60)]
            answers.append(httpx.post(f"{server.url}/translate", json={**SOURCE, "q": texts}, timeout=60).status_code)

        thread = threading.Thread(target=ask)
        thread.start()
        while 'method="POST",route="/translate"' not in httpx.get(f"{server.url}/metrics").text and not answers:
            if "knn_seq_requests_running 2.0" in httpx.get(f"{server.url}/metrics").text:
                break
        assert server.stop() == 0
        thread.join()
        assert answers == [200]
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/health")


def test_workers_that_are_killed_are_replaced_and_no_acknowledged_write_is_lost(language_store, tmp_path):
    """Two processes serve one datastore; one is killed while pairs are added, and later the complete server."""
    shutil.copytree(language_store, tmp_path / "store")
    jobs = tmp_path / "clients" / "jobs"
    arguments = [f"numbers={tmp_path / 'store'}", "--workers", "2", "--jobs-folder", jobs]
    acknowledged, ended = [], threading.Event()
    with ServerProcess(arguments, tmp_path / "log") as server:

        def add(own):
            number = 0
            while not ended.is_set():
                number += 1
                source = f"{own} {5 + number % 50} {5 + number // 50}"
                body = {"pairs": [{"source": source, "target": "7 8", "id": f"{own}-{number}"}]}
                try:
                    answer = httpx.put(f"{server.url}{STORE}/memory", json=body, timeout=60)
                except httpx.TransportError:
                    continue  # its process was killed: nobody has said that it is there
                if answer.status_code == 200:
                    acknowledged.append(f"{own}-{number}")

        job = httpx.post(f"{server.url}{STORE}/documents", files={"file": ("a.txt", b"5 7")}, timeout=60).json()["job"]
        assert [path.name for path in jobs.iterdir()] == [job]
        threads = [threading.Thread(target=add, args=(own,)) for own in (10, 20)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 5:
            time.sleep(0.01)
        children = child_processes(server.process.pid)
        assert_spread(server.url, children)
        os.kill(random.Random(3).choice(children), signal.SIGKILL)
        count = len(acknowledged)
        while len(acknowledged) < count + 5:  # the other one answers
            time.sleep(0.01)
        while len(set(child_processes(server.process.pid)) - set(children)) < 1:
            time.sleep(0.1)
        every = [server.process.pid, *child_processes(server.process.pid)]
        for pid in every:
            os.kill(pid, signal.SIGKILL)
        ended.set()
        for thread in threads:
            thread.join()
    with ServerProcess([f"numbers={tmp_path / 'store'}"], tmp_path / "log2") as server:
        there: set[str] = set()
        for offset in range(0, len(acknowledged) + 500, 500):  # as many as a page has
            parameters = {"corpus": "corrections", "limit": 500, "offset": offset}
            page = httpx.get(f"{server.url}{STORE}/memory", params=parameters, timeout=60).json()
            there |= {pair["id"] for pair in page["pairs"]}
        assert {*acknowledged} <= there
        assert server.stop() == 0


def assert_spread(url: str, processes: list[int]) -> None:
    """Of many connections each process has some, as soon as all of them listen."""
    address, until = urlsplit(url), time.monotonic() + 60
    gained = [0]
    while min(gained) <= 5:
        assert time.monotonic() < until, gained
        before = list(map(open_sockets, processes))
        with ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(socket.create_connection((address.hostname, address.port)))
            time.sleep(0.5)
            gained = [open_sockets(each) - its for each, its in zip(processes, before, strict=True)]


def open_sockets(process: int) -> int:
    """How many sockets a process has open."""
    found = 0
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found += os.readlink(file).startswith("socket:")
    return found


def child_processes(pid: int) -> list[int]:
    """Worker processes of a supervisor: its children but for multiprocessing's tracker of resources."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(child) for child in file.read().split()]
    found = []
    for child in children:
        try:
            with open(f"/proc/{child}/cmdline") as file:
                if "spawn_main" in file.read():
                    found.append(child)
        except FileNotFoundError:
            continue
    return found

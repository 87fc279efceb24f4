"""A server against direct calls of the same translator, and under load.

    python benchmarks/serve.py --into docs/serving.md      # about five minutes
    python benchmarks/serve.py --parts throughput latency

Parts: throughput of 16 clients that send a sentence each or lists of them, where the processor's time goes, and the
99th percentile of their waiting, with one process and with one for each core; latency of one client alone; memory over
many requests; 200 clients at once; writes that were acknowledged before a server was killed.  Servers and direct calls
take turns, so that whatever else the machine does hits all of them; all have as many cores.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
from figures import write_figures
from rounds import Options, Ratio, Row, command_line, options_of, table
from speed_models import sized_store, speed_model

from knn_seq import Translator
from knn_seq.serve.texts import SplitText

PARTS = ("throughput", "latency", "memory", "many", "kills")
CLIENTS, BATCH = 16, 32
LIST = 20  # sentences of a request of Weblate
ROUNDS = 3
SENTENCES = 480  # of a round: so many that its end, when clients have nothing more to send, counts little
REQUESTS, WORDS = 10_000, 3  # for the memory: many short texts
MANY, QUEUE = 200, 100  # clients at once, and how many sentences may wait
KILLS = 10
OK, BUSY = 200, 503


class Processor(NamedTuple):
    """Processor seconds of a server and of its clients, who are this process."""

    translations: float  # the queue's thread, and those that compute for it
    http: float  # the main thread's
    clients: float

    def since(self, before: Processor) -> Processor:
        """Those that were used since then."""
        return Processor(*(now - then for now, then in zip(self, before, strict=True)))


def _processor_seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """`knn-seq serve` in a process of its own."""

    def __init__(self, store: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "knn_seq.cli.main", "serve", f"bench={store}", "--port", str(port), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                httpx.get(f"{self.url}/health")
                break
            except httpx.TransportError:
                if self.process.poll() is not None:
                    raise SystemExit(f"The server of {store} does not start.") from None
                time.sleep(0.1)
        self.languages = {key: httpx.get(f"{self.url}/v1/stores").json()[0][key] for key in ("source", "target")}

    def resident(self) -> float:
        """Megabytes of memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def processor_seconds(self) -> Processor:
        """What it has used so far, with its worker processes."""
        own = self.process.pid
        workers = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        used = [
            [_processor_seconds(Path(f"/proc/{pid}/{path}stat")) for path in (f"task/{pid}/", "")]
            for pid in (own, *workers)
        ]
        http, all_threads = map(sum, zip(*used, strict=True))
        return Processor(all_threads - http, http, time.process_time())

    def stop(self) -> int:
        """Tell it to stop; its exit code."""
        self.process.terminate()
        return self.process.wait()


Body = Callable[[str], dict[str, Any]]


class Client:
    """A connection that stays, and as little else as can be: what a client computes, the server cannot."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, url: str) -> Client:
        """Connect to a server."""
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def post(self, path: str, body: dict[str, Any]) -> int:
        """Send JSON; the status of the answer."""
        data = json.dumps(body).encode()
        head = [
            f"POST {path} HTTP/1.1",
            "Host: bench",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
        ]
        self._writer.write("\r\n".join([*head, "", ""]).encode() + data)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        await self._reader.readexactly(int(answer.partition(b"content-length:")[2].split()[0]))
        return int(answer.split()[1])

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


async def ask(
    server: Server, texts: Sequence[Any], clients: int, path: str = "/translate", body: Body | None = None
) -> tuple[list[float], Counter[int]]:
    """Let clients send texts, one at a time each; the seconds of each request, and the statuses."""
    waiting, seconds, statuses = list(texts), list[float](), Counter[int]()
    made = body or (lambda text: {"q": text, **server.languages})

    async def one() -> None:
        client = await Client.connect(server.url)
        while waiting:
            start = time.perf_counter()
            statuses[await client.post(path, made(waiting.pop()))] += 1
            seconds.append(time.perf_counter() - start)
        client.close()

    await asyncio.gather(*(one() for _ in range(clients)))
    return seconds, statuses


def throughput(servers: dict[str, Server], translator: Translator, sentences: list[str], options: Options) -> list[Row]:
    """16 clients against direct calls with batches of 32."""
    requests: dict[str, list[Any]] = {
        "a sentence": list(sentences),
        f"lists of {LIST} sentences": [sentences[place : place + LIST] for place in range(0, len(sentences), LIST)],
    }
    systems = list(product(servers, requests))
    shares: dict[tuple[str, str], list[float]] = {system: [] for system in systems}
    used: dict[tuple[str, str], list[Processor]] = {system: [] for system in systems}
    tails: dict[str, list[float]] = {name: [] for name in servers}
    translator.translate(sentences[:BATCH], batch_size=BATCH)
    for server in servers.values():
        asyncio.run(ask(server, sentences[: CLIENTS * BATCH], CLIENTS))
    for _ in range(options.rounds):
        start, own = time.perf_counter(), time.process_time()
        translator.translate(sentences, batch_size=BATCH)
        direct, own = time.perf_counter() - start, time.process_time() - own
        for system in systems:
            server, texts = servers[system[0]], requests[system[1]]
            start, before = time.perf_counter(), server.processor_seconds()
            seconds, _ = asyncio.run(ask(server, texts, CLIENTS))
            shares[system].append(direct / (time.perf_counter() - start))
            used[system].append(Processor(*(each / own for each in server.processor_seconds().since(before))))
            if texts == sentences:
                tails[system[0]].append(statistics.quantiles(seconds, n=100)[98] / (direct * BATCH / len(sentences)))
    rows = []
    for server_name, sent in systems:
        what = f"{server_name}: sentences a second of {CLIENTS} clients that send {sent}"
        ratio = Ratio.over(shares[server_name, sent])
        rows.append(Row(f"{what}, against `knn-seq translate` with batches of {BATCH}", ratio, options.goal(0.85)))
        for party, ratios in zip(Processor._fields, zip(*used[server_name, sent], strict=True), strict=True):
            rows.append(Row(f"processor seconds for them: {party}, against direct calls", Ratio.over(ratios)))
    for server_name, its in tails.items():
        what = f"{server_name}: 99th percentile of the time of a sentence, against that of a batch of {BATCH}"
        rows.append(Row(what, Ratio.over(its), options.goal(2.0), at_most=True))
    return rows


def latency(server: Server, translator: Translator, sentences: list[str], options: Options) -> list[Row]:
    """A request alone against a direct call."""
    medians = []
    with httpx.Client(base_url=server.url, timeout=300) as client:
        for number in range(-1, options.rounds):
            ratios = []
            for place, sentence in enumerate(sentences[max(number, 0) :: options.rounds][: 2 if number < 0 else 20]):
                asks: list[Callable[[], object]] = [
                    lambda text=sentence: translator.translate(text),  # type: ignore[misc]
                    lambda text=sentence: client.post("/translate", json={"q": text, **server.languages}),  # type: ignore[misc]
                ]
                seconds = [0.0, 0.0]
                for which in (0, 1) if place % 2 else (1, 0):
                    start = time.perf_counter()
                    asks[which]()
                    seconds[which] = time.perf_counter() - start
                ratios.append(seconds[1] / seconds[0])
            if number >= 0:
                medians.append(statistics.median(ratios))
    return [
        Row("time of a request alone, against a direct call", Ratio.over(medians), options.goal(1.15), at_most=True)
    ]


def memory(server: Server, sentences: list[str], options: Options) -> list[Row]:
    """The server's memory before and after many requests with settings of all kinds; the first ones fill caches."""
    count = 100 if options.quick else REQUESTS
    texts = [" ".join(sentences[n % len(sentences)].split()[:WORDS]) + f" {n}" for n in range(count)]
    chosen = random.Random(0)

    def body(text: str) -> dict[str, Any]:
        return {"texts": [text], "options": {"beam_size": 1, "k": chosen.randint(2, 32)}}

    asyncio.run(ask(server, texts[: count // 10], CLIENTS, "/v1/translate", body))
    before = server.resident()
    _, statuses = asyncio.run(ask(server, texts, CLIENTS, "/v1/translate", body))
    after = server.resident()
    figures = {"MB": [before, after], "statuses": dict(statuses)}
    flaw = "" if set(statuses) == {OK} else f"answers {dict(statuses)}"
    what = f"resident memory after {count:,} requests, against before"
    return [Row(what, Ratio.over([after / before]), options.goal(1.02), True, figures, flaw)]


def many(store: Path, sentences: list[str], options: Options) -> list[Row]:
    """200 clients at once, whom a short queue cannot take all."""
    server = Server(store, "--queue-size", str(QUEUE))
    try:
        clients = 20 if options.quick else MANY
        _, statuses = asyncio.run(ask(server, (sentences * MANY)[: 2 * clients], clients))
    finally:
        code = server.stop()
    errors = sum(number for status, number in statuses.items() if status not in (OK, BUSY))
    what = f"answers to {clients} clients at once that are neither 200 nor 503 ({statuses[OK]} and {statuses[BUSY]})"
    flaw = f"exit code {code} after SIGTERM" if code else ""
    return [Row(what, Ratio.over([errors]), options.goal(0), True, {"statuses": dict(statuses)}, flaw)]


def kills(store: Path, options: Options) -> list[Row]:
    """Acknowledged pairs that are missing after SIGKILL at random points."""
    chance, known, lost = random.Random(0), set[str](), set[str]()
    times = 1 if options.quick else KILLS
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "store"
        shutil.copytree(store, copied)
        for number in range(times):
            server = Server(copied)
            lost |= known - stored(server)
            known |= asyncio.run(add_until_killed(server, number, chance.uniform(0.2, 3.0)))
        server = Server(copied)
        lost |= known - stored(server)
        server.stop()
    what = f"acknowledged additions that are missing after {times} kills, of {len(known):,}"
    return [Row(what, Ratio.over([len(lost)]), options.goal(0), at_most=True)]


def stored(server: Server) -> set[str]:
    """The ids of all pairs that were added through the API."""
    there: set[str] = set()
    while True:
        query: dict[str, str | int] = {"corpus": "corrections", "limit": 500, "offset": len(there)}
        found = httpx.get(f"{server.url}/v1/stores/bench/memory", params=query, timeout=60).json()["pairs"]
        there |= {pair["id"] for pair in found}
        if len(found) < 500:
            return there


async def add_until_killed(server: Server, run: int, seconds: float) -> set[str]:
    """Add pairs while others translate, and kill the server; the ids of the pairs that it has acknowledged."""
    known: set[str] = set()

    async def add(client: httpx.AsyncClient, own: int) -> None:
        for number in range(10_000):
            name = f"{run}-{own}-{number}"
            pair = {"source": f"{name} 5 6 7", "target": "8 9 10", "id": name}
            try:
                answer = await client.put("/v1/stores/bench/memory", json={"pairs": [pair]})
                if answer.status_code == OK:
                    known.add(name)
                await client.post("/translate", json={"q": f"{name} 8 9", **server.languages})
            except httpx.TransportError:
                return

    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        running = [asyncio.create_task(add(client, own)) for own in range(4)]
        await asyncio.sleep(seconds)
        os.kill(server.process.pid, signal.SIGKILL)
        await asyncio.gather(*running)
    server.process.wait()
    return known


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (None if arguments.quick else ROUNDS)
    options, parts = options_of(arguments), set(arguments.parts)
    built, test = sized_store(arguments.folder, "firefox", speed_model("firefox"), "tiny" if options.quick else "100k")
    # A server would translate two sentences as two, and a direct call as one.
    sentences = [pair.source for pair in test if len(SplitText.of(pair.source, "pt").sentences) == 1]
    store = built.path
    sentences = sentences[: CLIENTS if options.quick else SENTENCES]
    rows: list[Row] = []
    if parts & {"throughput", "latency", "memory"}:
        server = Server(store)
        try:
            with Translator(store) as translator:
                if "throughput" in parts:
                    cores = max(2, os.cpu_count() or 1)
                    several = Server(store, "--workers", str(cores))
                    servers = {"one process": server, f"`--workers {cores}`": several}
                    try:
                        rows += throughput(servers, translator, sentences, options)
                    finally:
                        several.stop()
                if "latency" in parts:
                    rows += latency(server, translator, sentences, options)
            if "memory" in parts:
                rows += memory(server, sentences, options)
        finally:
            server.stop()
    if "many" in parts:
        rows += many(store, sentences, options)
    if "kills" in parts:
        rows += kills(store, options)
    write_figures(arguments.into, {"serve": table(rows)})


if __name__ == "__main__":
    main()

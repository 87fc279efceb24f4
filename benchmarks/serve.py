"""A server against direct calls of the same translator, and under load: `python benchmarks/serve.py STORE SENTENCES`.

Parts: throughput of clients that send a sentence each, and the 99th percentile of their waiting; latency of one client
alone; memory over many requests; many clients at once; writes that were acknowledged before the server was killed.
Server and direct calls take turns, so that what else the machine does hits both.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from knn_seq.translator import Translator

PARTS = ("throughput", "latency", "memory", "many", "kills")


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

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait()


async def ask(server: Server, sentences: Sequence[str], clients: int) -> tuple[list[float], Counter[int]]:
    """Let clients send sentences, one at a time each; the seconds of each request, and the statuses."""
    waiting, seconds, statuses = list(sentences), list[float](), Counter[int]()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def one(client: httpx.AsyncClient) -> None:
        while waiting:
            start = time.perf_counter()
            answer = await client.post("/translate", json={"q": waiting.pop(), **server.languages})
            statuses[answer.status_code] += 1
            seconds.append(time.perf_counter() - start)

    async with httpx.AsyncClient(base_url=server.url, timeout=300, limits=limits) as client:
        await asyncio.gather(*(one(client) for _ in range(clients)))
    return seconds, statuses


def throughput(server: Server, translator: Translator, sentences: list[str], rounds: int) -> dict[str, Any]:
    """Sentences a second of 16 clients over those of direct calls in batches of 32."""
    shares, tails = [], []
    for number in range(rounds):
        part = sentences[number::rounds]
        start = time.perf_counter()
        translator.translate(part, batch_size=32)
        direct = time.perf_counter() - start
        start = time.perf_counter()
        seconds, _ = asyncio.run(ask(server, part, 16))
        shares.append(direct / (time.perf_counter() - start))
        tails.append(statistics.quantiles(seconds, n=100)[98] / (direct * 32 / len(part)))
    return {"throughput over direct": shares, "p99 over the time of a batch of 32": tails}


def latency(server: Server, translator: Translator, sentences: list[str], rounds: int) -> dict[str, Any]:
    """The time of a request alone over that of a direct call."""
    pairs = []
    with httpx.Client(base_url=server.url, timeout=300) as client:
        for sentence in sentences[: 20 * rounds]:
            start = time.perf_counter()
            translator.translate(sentence)
            middle = time.perf_counter()
            client.post("/translate", json={"q": sentence, **server.languages})
            pairs.append((time.perf_counter() - middle) / (middle - start))
    return {"latency over direct (median)": [statistics.median(pairs)]}


def memory(server: Server, sentences: list[str], requests: int) -> dict[str, Any]:
    """Megabytes before and after many requests; the first ones fill what is kept."""
    texts = [sentences[number % len(sentences)] for number in range(requests)]
    asyncio.run(ask(server, texts[: max(requests // 10, 1)], 16))
    before = server.resident()
    asyncio.run(ask(server, texts, 16))
    return {"MB before": [before], "MB after": [server.resident()], "requests": [requests]}


def many(store: Path, sentences: list[str]) -> dict[str, Any]:
    """The statuses of 200 clients at once, whom a short queue cannot take all."""
    server = Server(store, "--queue-size", "100")
    try:
        _, statuses = asyncio.run(ask(server, (sentences * 200)[:600], 200))
    finally:
        server.stop()
    return {f"status {status}": [number] for status, number in statuses.items()}


def kills(store: Path, times: int) -> dict[str, Any]:
    """Acknowledged pairs that are missing after SIGKILL at random points, and how many were acknowledged."""
    chance, acknowledged, lost = random.Random(0), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "store"
        shutil.copytree(store, copied)
        for number in range(times):
            server = Server(copied)
            known = asyncio.run(_add_until_killed(server, number, chance.uniform(0.2, 4.0)))
            server = Server(copied)
            there: set[str] = set()
            while True:
                query: dict[str, str | int] = {"corpus": "corrections", "limit": 500, "offset": len(there)}
                found = httpx.get(f"{server.url}/v1/stores/bench/memory", params=query, timeout=60).json()["pairs"]
                there |= {pair["id"] for pair in found}
                if len(found) < 500:
                    break
            lost += len(known - there)
            acknowledged += len(known)
            server.stop()
    return {"acknowledged": [acknowledged], "lost": [lost], "kills": [times]}


async def _add_until_killed(server: Server, run: int, seconds: float) -> set[str]:
    known: set[str] = set()

    async def add(client: httpx.AsyncClient, own: int) -> None:
        for number in range(10_000):
            name = f"{run}-{own}-{number}"
            pair = {"source": f"{name} 5 6 7", "target": "8 9 10", "id": name}
            try:
                answer = await client.put("/v1/stores/bench/memory", json={"pairs": [pair]})
            except httpx.TransportError:
                return
            if answer.status_code == 200:
                known.add(name)

    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        running = [asyncio.create_task(add(client, own)) for own in range(4)]
        await asyncio.sleep(seconds)
        os.kill(server.process.pid, signal.SIGKILL)
        await asyncio.gather(*running)
    server.process.wait()
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path, help="a datastore, which is copied where it is changed")
    parser.add_argument("sentences", type=Path, help="a text file of sentences that are not in it")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--limit", type=int, default=480, help="sentences (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10_000, help="for the memory (default %(default)s)")
    parser.add_argument("--kills", type=int, default=10)
    arguments = parser.parse_args()
    sentences = [line.strip() for line in arguments.sentences.read_text().splitlines() if line.strip()]
    sentences = sentences[: arguments.limit]
    results: dict[str, Any] = {}
    if {"throughput", "latency", "memory"} & set(arguments.parts):
        server = Server(arguments.store)
        translator = Translator(arguments.store)
        try:
            if "throughput" in arguments.parts:
                results["throughput"] = throughput(server, translator, sentences, arguments.rounds)
            if "latency" in arguments.parts:
                results["latency"] = latency(server, translator, sentences, arguments.rounds)
            if "memory" in arguments.parts:
                results["memory"] = memory(server, sentences, arguments.requests)
        finally:
            code = server.stop()
        results["exit code after SIGTERM"] = code
    if "many" in arguments.parts:
        results["many"] = many(arguments.store, sentences)
    if "kills" in arguments.parts:
        results["kills"] = kills(arguments.store, arguments.kills)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()

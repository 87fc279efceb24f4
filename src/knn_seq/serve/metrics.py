"""What Prometheus is told: requests, their time, the queue, batches, where the time goes, what is in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the folder in which several processes count together
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The figures of a server, all its processes together."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.requests = Counter("knn_seq_requests", "Requests", ("route", "method", "status"), registry=own)
        self.seconds = Histogram(
            "knn_seq_request_seconds", "Time of requests", ("route",), buckets=SECONDS, registry=own
        )
        self.running = Gauge("knn_seq_requests_running", "Requests that run", multiprocess_mode="livesum", registry=own)
        self.waiting = Gauge(
            "knn_seq_queue_sentences", "Sentences that wait", ("store",), multiprocess_mode="livesum", registry=own
        )
        self.batch = Histogram(
            "knn_seq_batch_sentences", "Sentences of a batch", ("store",), buckets=SIZES, registry=own
        )
        self.parts = Counter(
            "knn_seq_decoding_seconds", "Time of decoding, by what it went to", ("store", "part"), registry=own
        )
        self.pairs = Gauge(
            "knn_seq_memory_pairs",
            "Sentence pairs of a memory",
            ("store",),
            multiprocess_mode="mostrecent",
            registry=own,
        )
        self.entries = Gauge(
            "knn_seq_memory_entries", "Entries of a memory", ("store",), multiprocess_mode="mostrecent", registry=own
        )

    def batch_done(self, store: str, size: int, seconds: float, parts: Mapping[str, float]) -> None:
        """A batch was translated.

        Args:
            store: The datastore's name.
            size: Its sentences.
            seconds: That it took.
            parts: Those that searching and combining took.
        """
        self.batch.labels(store).observe(size)
        for part, spent in parts.items():
            self.parts.labels(store, part).inc(spent)
        self.parts.labels(store, "model").inc(max(seconds - sum(parts.values()), 0.0))

    def answer(self) -> Response:
        """All figures as Prometheus reads them."""
        registry = self._registry
        if SHARED in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class RequestMetrics:
    """Counts requests and their time.

    Args:
        app: The application.
        metrics: Who is told.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request under its route: what a client writes into a path must not become a label."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.running.inc()
        try:
            await self.app(scope, receive, noted)
        finally:
            self.metrics.running.dec()
            route = getattr(scope.get("route"), "path", "other")
            method = Request(scope).method
            known = method if method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS") else "other"
            self.metrics.requests.labels(route, known, status).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - start)

"""The same application as replicas of Ray Serve, on this machine or on a cluster.

This process takes the requests and hands each to a replica.  If one dies, its requests are asked again, once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from starlette.types import Message, Scope

from knn_seq.build.engine.cluster import connect, import_ray
from knn_seq.errors import MissingLibrary
from knn_seq.serve.errors import RequestError
from knn_seq.serve.settings import ServerSettings

log = logging.getLogger(__name__)

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
NAME = "knn-seq"
RUNNING = 256  # requests of a replica; its own queue decides how many of them wait
RETRY_SECONDS = 2


class Answer(NamedTuple):
    """What a replica answers."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Replica:
    """The application in a process of Ray's.

    Args:
        named: The datastores' folders by their names.
        settings: Limits and keys.
    """

    def __init__(self, named: dict[str, Path], settings: ServerSettings) -> None:
        from knn_seq.serve.app import make_app

        self._app = make_app(named, settings)

    async def answer(self, scope: dict[str, Any], body: bytes) -> Answer:
        """Answer a request."""
        answer: dict[str, Any] = {"status": 500, "headers": [], "parts": []}
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()  # nobody tells a replica that a client went away
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer["status"], answer["headers"] = message["status"], list(message.get("headers", []))
            else:
                answer["parts"].append(bytes(message.get("body", b"")))

        await self._app(scope, receive, send)
        return Answer(answer["status"], answer["headers"], b"".join(answer["parts"]))

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()


def start_replicas(named: dict[str, Path], settings: ServerSettings, address: str | None) -> Any:
    """Start replicas; returns Ray Serve's handle of them.

    Args:
        named: The datastores' folders by their names, which all machines see under the same path.
        settings: `workers` is the number of replicas.
        address: Of a Ray cluster; None: Ray is started on this machine.
    """
    ray = import_ray()
    try:
        from ray import serve
    except ImportError as error:
        raise MissingLibrary("Replicas need Ray Serve: install it with `pip install 'knn-seq[ray,serve]'`.") from error
    if not ray.is_initialized():
        ending = signal.getsignal(signal.SIGTERM)
        connect(ray, address or os.environ.get("RAY_ADDRESS"), settings.workers + 1)
        signal.signal(signal.SIGTERM, ending)  # Ray's own would end this process at once
    serve.start(proxy_location="Disabled")  # this process is what clients talk to
    deployment = serve.deployment(
        Replica,
        name="replicas",
        num_replicas=settings.workers,
        max_ongoing_requests=RUNNING,
        ray_actor_options={"num_cpus": 1},
        health_check_period_s=2,
    )
    paths = {name: path.resolve() for name, path in named.items()}
    return serve.run(deployment.bind(paths, settings), name=NAME, route_prefix=None)


def front_app(handle: Any, settings: ServerSettings) -> FastAPI:
    """What clients talk to: hands each request to a replica.

    Args:
        handle: Of the replicas.
        settings: Limits.
    """
    from knn_seq.serve.app import answer_errors
    from knn_seq.serve.middleware import BodyLimit

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.api_route("/{path:path}", methods=METHODS)
    async def forward(request: Request) -> Response:
        answer = await _asked(handle, _portable(request.scope), await request.body())
        response = Response(answer.body, answer.status)
        response.raw_headers = answer.headers
        return response

    answer_errors(app)
    app.add_middleware(BodyLimit, settings.largest_body, settings.largest_upload)
    return app


def stop_replicas() -> None:
    """End the replicas, and Ray if it was started here."""
    from ray import serve

    serve.shutdown()
    import_ray().shutdown()


async def _asked(handle: Any, scope: dict[str, Any], body: bytes) -> Answer:
    """The answer of a replica, or of another one if the first dies; what would be added twice is not asked again."""
    from ray.exceptions import RayActorError

    adds = scope["method"] == "POST" and scope["path"].rpartition("/")[2] in ("memory", "imports")
    for last in (adds, True):
        try:
            return Answer(*await handle.answer.remote(scope, body))
        except RayActorError:
            if last:
                break
            log.warning("A replica died; its request is asked again.")
    raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "A replica died: try again.", RETRY_SECONDS)


def _portable(scope: Scope) -> dict[str, Any]:
    """The parts of a request that travel to another process."""
    names = ("type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers")
    kept = {name: scope[name] for name in names if name in scope}
    return {**kept, "headers": list(scope["headers"]), "client": scope.get("client"), "server": scope.get("server")}

"""The application: routes, errors, headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from knn_seq import __version__
from knn_seq.serve.access import Access, KeyFile
from knn_seq.serve.documents import documents_api
from knn_seq.serve.errors import RequestError
from knn_seq.serve.glossary import glossary_api
from knn_seq.serve.jobs import Jobs
from knn_seq.serve.libretranslate import libretranslate_api
from knn_seq.serve.memory import memory_api
from knn_seq.serve.metrics import Metrics, RequestMetrics
from knn_seq.serve.middleware import BodyLimit, SecurityHeaders
from knn_seq.serve.service import Service
from knn_seq.serve.settings import ServerSettings
from knn_seq.serve.stores import Stores
from knn_seq.serve.v1 import v1_api

PAGE = Path(__file__).parent / "page"
DESCRIPTION = "/v1/openapi.json"
CORS_METHODS = ("GET", "POST", "PUT", "DELETE")


def make_app(named: dict[str, Path], settings: ServerSettings) -> FastAPI:
    """The application that serves some datastores.

    Args:
        named: The datastores' folders by their names.
        settings: Limits and keys.
    """
    metrics, jobs = Metrics(), Jobs(settings.jobs_folder)
    stores, service = Stores.open(named, settings, metrics), Service(settings)
    access = Access(None if settings.api_keys is None else KeyFile(settings.api_keys))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(jobs.close)  # what runs needs this loop to end
        await asyncio.to_thread(stores.close, settings.shutdown_seconds)

    app = FastAPI(
        title="knn-seq", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    for router in (
        libretranslate_api(stores, service, access, jobs),
        v1_api(stores, service, access),
        memory_api(stores, service, access, jobs),
        glossary_api(stores, service, access),
        documents_api(stores, service, access, jobs),
    ):
        app.include_router(router)
    app.mount("/page", StaticFiles(directory=PAGE), "page")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/metrics", include_in_schema=False)
    async def figures() -> Response:
        for each in stores:
            metrics.waiting.labels(each.name).set(each.queue.waiting)
            counts = each.current.manifest.counts
            metrics.pairs.labels(each.name).set(counts.sentences)
            metrics.entries.labels(each.name).set(counts.tokens)
        return metrics.answer()

    @app.get(DESCRIPTION, include_in_schema=False)
    async def description() -> JSONResponse:
        return JSONResponse(_described(app))

    answer_errors(app)
    # The one that is added last sees a request first.
    app.add_middleware(BodyLimit, settings.largest_body, settings.largest_upload)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=CORS_METHODS, allow_headers=["*"]
        )
    app.add_middleware(RequestMetrics, metrics)
    app.add_middleware(SecurityHeaders)
    return app


def answer_errors(app: FastAPI) -> None:
    """Let an application answer every error with one sentence."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        told = error.detail if isinstance(error, RequestError) else HTTPStatus(error.status_code).phrase
        return JSONResponse({"error": told}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part)[:64] for part in first["loc"][1:]) or "the request"
        return JSONResponse({"error": f"Invalid request: {place}: {first['msg']}"}, HTTPStatus.BAD_REQUEST)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "Internal error; the server's log says more."}, HTTPStatus.INTERNAL_SERVER_ERROR)


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description; an invalid request is answered with 400, as LibreTranslate does, and not with 422."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        app.openapi_schema = schema
    return app.openapi_schema

"""The application: routes, errors, headers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from knn_seq import __version__
from knn_seq.serve.access import Access, KeyFile
from knn_seq.serve.errors import RequestError
from knn_seq.serve.libretranslate import libretranslate_api
from knn_seq.serve.service import Service
from knn_seq.serve.settings import ServerSettings
from knn_seq.serve.stores import Stores
from knn_seq.serve.v1 import v1_api

PAGE = Path(__file__).parent / "page"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def make_app(stores: Stores, settings: ServerSettings) -> FastAPI:
    """The application that serves some datastores.

    Args:
        stores: The datastores.
        settings: Limits and keys.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        stores.close(settings.shutdown_seconds)

    app = FastAPI(
        title="knn-seq",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    access = Access(None if settings.api_keys is None else KeyFile(settings.api_keys))
    service = Service(settings)
    app.include_router(libretranslate_api(stores, service, access))
    app.include_router(v1_api(stores, service, access))
    app.mount("/page", StaticFiles(directory=PAGE), "page")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )

    @app.middleware("http")
    async def headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> JSONResponse:
        retry = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        return JSONResponse({"error": error.sentence}, error.status, retry)

    @app.exception_handler(HTTPException)
    async def not_there(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": HTTPStatus(error.status_code).phrase}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return JSONResponse({"error": f"Invalid request: {place}: {first['msg']}"}, HTTPStatus.BAD_REQUEST)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "Internal error; the server's log says more."}, HTTPStatus.INTERNAL_SERVER_ERROR)

    return app

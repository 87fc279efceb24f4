"""What holds for every request: a limit of its size, and headers of its answer."""

from __future__ import annotations

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knn_seq.serve.errors import too_large

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
UPLOADS = re.compile(r"/translate_file|/v1/stores/[^/]+/(imports|documents)")
FORM = 64 << 10  # bytes of an upload beside its file


class SecurityHeaders:
    """Tells browsers what a page of this server may do; what is not cached is asked for again.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers to an answer."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


class BodyLimit:
    """Refuses requests that are too large, as soon as they are: what lies beyond the limit is not read.

    Args:
        app: The application.
        largest_body: Bytes of a request.
        largest_upload: Bytes of a file.
    """

    def __init__(self, app: ASGIApp, largest_body: int, largest_upload: int) -> None:
        self.app, self.largest_body, self.largest_upload = app, largest_body, largest_upload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what comes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        upload = UPLOADS.fullmatch(scope["path"])
        limit, extra = (self.largest_upload, FORM) if upload else (self.largest_body, 0)
        announced = Headers(scope=scope).get("content-length", "")
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit + extra or (announced.isdigit() and int(announced) > limit + extra):
                raise too_large(limit)
            return message

        await self.app(scope, counted, send)

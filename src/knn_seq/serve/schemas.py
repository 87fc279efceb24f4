"""What both APIs have in common: errors, and who may ask."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Header
from pydantic import BaseModel

from knn_seq.serve.access import Access


class Error(BaseModel):
    """What is wrong with a request."""

    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": description}
    for status, description in (
        (400, "The request cannot be understood, or a key is missing"),
        (403, "The key does not permit this"),
        (404, "What the request names is not there"),
        (413, "The request is too large"),
        (429, "Too many requests: Retry-After says when to try again"),
        (500, "Something went wrong that the client cannot mend"),
        (503, "Too much is waiting, or the server is stopping: Retry-After says when to try again"),
    )
}


def bearer(authorization: str | None) -> str | None:
    """The key of an Authorization header."""
    kind, _, key = (authorization or "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else None


def may(access: Access, role: str) -> Any:
    """A dependency of routes that only some may use.

    Args:
        access: Decides.
        role: What is needed.
    """

    async def check(authorization: str | None = Header(None, description="Bearer and an API key")) -> None:
        access.check(bearer(authorization), role)

    return Depends(check)

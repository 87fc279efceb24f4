"""What a client is told when a request cannot be answered: {"error": "one sentence"} and a status."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException


class RequestError(HTTPException):
    """A request that cannot be answered.

    Args:
        status: The HTTP status.
        sentence: What is wrong, for the client.
        retry_after: Seconds after which to try again.
    """

    def __init__(self, status: HTTPStatus, sentence: str, retry_after: int | None = None) -> None:
        headers = None if retry_after is None else {"Retry-After": str(retry_after)}
        # What a client has sent may be in the sentence, half characters too, which no answer can hold.
        super().__init__(status, sentence.encode(errors="replace").decode(), headers)


def bad_request(sentence: str) -> RequestError:
    """The client has to send something else."""
    return RequestError(HTTPStatus.BAD_REQUEST, sentence)


def not_found(sentence: str) -> RequestError:
    """What the request names is not there."""
    return RequestError(HTTPStatus.NOT_FOUND, sentence)


def too_large(limit: int) -> RequestError:
    """The request has more bytes than are taken."""
    return RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The request is larger than {limit:,} bytes.")

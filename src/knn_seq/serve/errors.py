"""What a client is told when a request cannot be answered: {"error": "one sentence"} and a status."""

from __future__ import annotations

from http import HTTPStatus


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        status: The HTTP status.
        sentence: What is wrong, for the client.
        retry_after: Seconds after which to try again.
    """

    def __init__(self, status: HTTPStatus, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_after = status, sentence, retry_after


def bad_request(sentence: str) -> RequestError:
    """The client has to send something else."""
    return RequestError(HTTPStatus.BAD_REQUEST, sentence)

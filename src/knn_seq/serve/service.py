"""What both APIs do: texts in, translations out, of the datastore that fits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from knn_seq.decoding import Translation
from knn_seq.errors import KnnSeqError
from knn_seq.serve.errors import RequestError, bad_request
from knn_seq.serve.queue import QueueFull, Stopping
from knn_seq.serve.settings import ServerSettings
from knn_seq.serve.stores import Served
from knn_seq.serve.texts import SplitText

T = TypeVar("T")
RETRY_SECONDS = 2
POLL_SECONDS = 0.2  # how soon a client that went away is noticed


@dataclass(frozen=True)
class TranslatedText:
    """A text of a request, translated."""

    text: str
    sentences: list[Translation]
    alternatives: list[str]


class Service:
    """Translates texts within the server's limits.

    Args:
        settings: The limits.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings

    async def translate(
        self,
        served: Served,
        texts: Sequence[str],
        options: Mapping[str, Any] | None = None,
        alternatives: int = 0,
        gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> list[TranslatedText]:
        """Translate texts, each in as many sentences as it has.

        Args:
            served: The datastore.
            texts: The texts.
            options: Fields of `SearchSettings` and `DecodingSettings`.
            alternatives: How many other translations of each text are wanted.
            gone: Tells whether the client has gone away.
        """
        self.check(texts)
        chosen = dict(options or {})
        if alternatives:
            beams = max(chosen.get("beam_size") or 0, served.translator.settings(chosen)[1].beam_size, alternatives + 1)
            chosen |= {"nbest": alternatives + 1, "beam_size": beams}
        split = [SplitText.of(text) for text in texts]
        sentences = [sentence for each in split for sentence in each.sentences]
        translated = iter(await self._guarded(served.queue.translate(sentences, chosen), gone))
        results = []
        for each in split:
            own = [next(translated) for _ in each.sentences]
            others = [
                each.joined([one.alternatives[number] if number < len(one.alternatives) else one for one in own])
                for number in range(alternatives)
            ]
            results.append(TranslatedText(each.joined(own), own, others))
        return results

    def check(self, texts: Sequence[str]) -> None:
        """Raise a `RequestError` if a request is larger than the server takes."""
        if len(texts) > self.settings.largest_batch:
            raise bad_request(
                f"Invalid request: request ({len(texts)}) exceeds text limit ({self.settings.largest_batch})"
            )
        characters = sum(map(len, texts))
        if characters > self.settings.largest_text:
            raise bad_request(
                f"Invalid request: request ({characters}) exceeds text limit ({self.settings.largest_text})"
            )

    async def _guarded(self, work: Awaitable[T], gone: Callable[[], Awaitable[bool]] | None) -> T:
        """What the work gives, if the client is still there and it does not take too long."""
        task = asyncio.ensure_future(work)
        last = asyncio.get_running_loop().time() + self.settings.request_seconds
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=POLL_SECONDS)
                if done:
                    return task.result()
                if gone is not None and await gone():
                    raise RequestError(HTTPStatus.BAD_REQUEST, "The client has gone away.")
                if asyncio.get_running_loop().time() >= last:
                    raise RequestError(
                        HTTPStatus.SERVICE_UNAVAILABLE, "The translation took too long: try again.", RETRY_SECONDS
                    )
        except QueueFull:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE, "The server is busy: try again in a moment.", RETRY_SECONDS
            ) from None
        except Stopping:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE, "The server is stopping: try again in a moment.", RETRY_SECONDS
            ) from None
        except KnnSeqError as error:
            raise bad_request(str(error)) from error
        finally:
            task.cancel()

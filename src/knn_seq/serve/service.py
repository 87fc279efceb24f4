"""What both APIs do: texts in, translations out, of the datastore that fits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import Request

from knn_seq.decoding import Translation
from knn_seq.errors import DiskFull, IndexUnavailable, KnnSeqError, NotEnoughMemory, NotFound
from knn_seq.protect import Finder
from knn_seq.serve.errors import RequestError, bad_request, not_found
from knn_seq.serve.protected import ProtectedTexts, TranslatedText
from knn_seq.serve.queue import QueueFull, Stopping
from knn_seq.serve.settings import ServerSettings
from knn_seq.serve.stores import Served
from knn_seq.serve.texts import SplitText

T = TypeVar("T")
RETRY_SECONDS = 2
PROTECTING, MOST_PROTECTING = 32, 256  # requests with placeholders that are worked on, and that wait with them


class Service:
    """Translates texts within the server's limits.

    Args:
        settings: The limits.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        # Threads that wait for the queue, and do little else: a text with placeholders may have to ask more than once.
        self._threads = ThreadPoolExecutor(PROTECTING, "placeholders")
        self._protecting = 0
        self._finder = Finder()

    async def translate(
        self,
        served: Served,
        texts: Sequence[str],
        options: Mapping[str, Any] | None = None,
        alternatives: int = 0,
        gone: Callable[[], Awaitable[None]] | None = None,
        html: bool = False,
        exact: bool = True,
    ) -> list[TranslatedText]:
        """Translate texts, each in as many sentences as it has.

        Args:
            served: The datastore.
            texts: The texts.
            options: Fields of `SearchSettings` and `DecodingSettings`.
            alternatives: How many other translations of each text are wanted.
            gone: Returns when the client has gone away.
            html: The texts are HTML.
            exact: A source that the memory has gets the memory's translation.
        """
        self.check(texts)
        return await self.guarded(
            served, self._translated(served, texts, dict(options or {}), alternatives, html, exact), gone
        )

    async def _translated(
        self,
        served: Served,
        texts: Sequence[str],
        options: dict[str, Any],
        alternatives: int,
        html: bool,
        exact: bool,
    ) -> list[TranslatedText]:
        if options or alternatives:
            _, decoding = served.translator.settings(options)  # what cannot be is refused at once
            if alternatives:
                options |= {"nbest": alternatives + 1, "beam_size": max(decoding.beam_size, alternatives + 1)}
        split = {
            place: SplitText.of(text, served.source)
            for place, text in enumerate(texts)
            if not (html or self._finder.find(text))
        }
        asked = {text.strip() for text in texts}.union(*(each.sentences for each in split.values()))
        stored = served.exact_matches.targets(asked) if exact and not html else {}
        made = {
            place: _learned(served, text, stored[text.strip()])
            for place, text in enumerate(texts)
            if text.strip() in stored
        }
        direct = [place for place in split if place not in made]
        guarded = [place for place in range(len(texts)) if place not in made and place not in split]
        others = asyncio.ensure_future(
            self._protected(served, [texts[place] for place in guarded], options, alternatives, html)
        )
        try:
            own = await self._direct(served, [split[place] for place in direct], options, alternatives, stored)
            made.update(zip(direct, own, strict=True))
            made.update(zip(guarded, await others, strict=True))
        finally:
            others.cancel()
        return [made[place] for place in range(len(texts))]

    async def _direct(
        self,
        served: Served,
        texts: Sequence[SplitText],
        options: Mapping[str, Any],
        alternatives: int,
        stored: Mapping[str, str],
    ) -> list[TranslatedText]:
        """Translate texts that are nothing but words; sentences that are stored have their translation already."""
        sentences = list(dict.fromkeys(sentence for each in texts for sentence in each.sentences))
        made = {source: _stored(served, source, stored[source]) for source in sentences if source in stored}
        new = [sentence for sentence in sentences if sentence not in made]
        made.update(zip(new, await served.queue.translate(new, options), strict=True))
        results = []
        for each in texts:
            own = [made[sentence] for sentence in each.sentences]
            others = [
                each.joined([one.alternatives[number] if number < len(one.alternatives) else one for one in own])
                for number in range(alternatives)
            ]
            learned = bool(own) and all(sentence in stored for sentence in each.sentences)
            results.append(TranslatedText(each.joined(own), own, others, learned))
        return results

    async def _protected(
        self, served: Served, texts: Sequence[str], options: Mapping[str, Any], alternatives: int, html: bool
    ) -> list[TranslatedText]:
        """Translate texts with placeholders or tags."""
        if not texts:
            return []
        if self._protecting >= MOST_PROTECTING:
            raise QueueFull
        loop = asyncio.get_running_loop()
        work = ProtectedTexts(served, options, loop)
        self._protecting += 1
        try:
            return await loop.run_in_executor(self._threads, work.translate, texts, html, alternatives)
        finally:
            self._protecting -= 1
            work.cancel()

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
        require_unicode(texts)

    async def guarded(self, served: Served, work: Awaitable[T], gone: Callable[[], Awaitable[None]] | None = None) -> T:
        """What the work gives, if the client is still there and it does not take too long.

        Args:
            served: The datastore that is worked on.
            work: The work.
            gone: Returns when the client has gone away.
        """
        limit, task = self.settings.request_seconds, asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(gone() if gone is not None else asyncio.Future())
        try:
            done, _ = await asyncio.wait({task, leaving}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if task in done:
                return task.result()
            if done:
                raise RequestError(HTTPStatus.BAD_REQUEST, "The client has gone away.")
            raise _unavailable("The translation took too long: try again.")
        except QueueFull:
            raise _unavailable("The server is busy: try again in a moment.") from None
        except Stopping:
            raise _unavailable("The server is stopping: try again in a moment.") from None
        except IndexUnavailable as error:
            raise _unavailable("The index does not answer: try again in a moment.") from error
        except (DiskFull, NotEnoughMemory) as error:
            raise RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "The server has no space left.") from error
        except KnnSeqError as error:
            told = str(error).replace(str(served.store.path), served.name)
            raise (not_found if isinstance(error, NotFound) else bad_request)(told) from error
        finally:
            task.cancel()
            leaving.cancel()


async def client_gone(request: Request) -> None:
    """Returns when the client of a request, which was read to its end, has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _unavailable(sentence: str) -> RequestError:
    return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, sentence, RETRY_SECONDS)


def require_unicode(texts: Sequence[str]) -> None:
    """Raise a `RequestError` if a text has half a character, which JSON can hold and no file can."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise bad_request("Invalid request: a text has half a character (a lone surrogate)") from None


def _stored(served: Served, source: str, target: str) -> Translation:
    """A translation that the memory has."""
    [tokens] = served.translator.model.tokenizer.encode_targets([target])
    return Translation(target, source, tokens)


def _learned(served: Served, text: str, target: str) -> TranslatedText:
    """A text that the memory has as it is, but for the space around it."""
    source = text.strip()
    start = text.index(source)
    whole = f"{text[:start]}{target}{text[start + len(source) :]}"
    return TranslatedText(whole, [_stored(served, source, target)], [], learned=True)

"""Requests that wait for the model: sentences of several are translated together, and none waits behind a long one."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from knn_seq.decoding import Translation
from knn_seq.errors import KnnSeqError
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.translator import Translator

log = logging.getLogger(__name__)

T = TypeVar("T")


BatchDone = Callable[[int, float, Mapping[str, float]], None]
"""Told how many sentences a batch had, how many seconds it took, and which parts of decoding took how many."""


class QueueFull(Exception):
    """More sentences wait already than are let in."""


class Stopping(Exception):
    """The server is about to stop, and takes nothing new."""


@dataclass(eq=False)
class Job:
    """The sentences of one request."""

    texts: list[str]
    options: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[list[Translation]]
    since: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    begun: int = 0  # sentences that were taken out of the queue
    results: dict[int, Translation] = field(default_factory=dict)

    @property
    def settings(self) -> str:
        """Sentences of equal settings may be translated together."""
        return json.dumps(self.options, sort_keys=True, default=str)

    def finish(self, error: BaseException | None = None) -> None:
        """Give the request what it waits for; from any thread."""

        results = None if error is not None else [self.results[i] for i in range(len(self.texts))]
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_resolve, self.done, results, error)


class TranslationQueue:
    """The translations of one datastore, made in a thread of their own.

    Requests take turns: a batch has a few sentences of each that waits, so a long text does not block a short one.

    Args:
        translator: What translates.
        batch_size: Sentences that are translated together.
        size: Sentences that may wait.
        prepare: Called before each batch.
        done: Told of each batch.
    """

    def __init__(
        self,
        translator: Translator,
        batch_size: int,
        size: int,
        prepare: Callable[[], None] | None = None,
        done: BatchDone | None = None,
    ) -> None:
        self.translator, self.batch_size, self.size = translator, batch_size, size
        self._prepare, self._done = prepare, done
        self._jobs: deque[Job] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="translations", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Sentences that nobody has begun to translate."""
        return sum(len(job.texts) - job.begun for job in list(self._jobs) if not job.cancelled)

    async def translate(self, texts: Sequence[str], options: Mapping[str, Any]) -> list[Translation]:
        """Translate sentences; one that is cancelled leaves the queue.

        Args:
            texts: The sentences.
            options: Fields of `SearchSettings` and `DecodingSettings`.
        """
        if not texts:
            return []
        loop = asyncio.get_running_loop()
        job = Job(list(texts), options, loop, loop.create_future())
        with self._changed:
            if self._stopping:
                raise Stopping
            if self.waiting + len(texts) > self.size:
                raise QueueFull
            self._jobs.append(job)
            self._changed.notify()
        try:
            return await job.done
        finally:
            job.cancelled = True

    async def call(self, function: Callable[[], T]) -> T:
        """What a function gives that needs the model to itself, such as an explanation; it runs between batches."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except Exception as error:
                loop.call_soon_threadsafe(_resolve, done, None, error)
            else:
                loop.call_soon_threadsafe(_resolve, done, result, None)

        with self._changed:
            if self._stopping:
                raise Stopping
            if len(self._calls) >= self.size:
                raise QueueFull
            self._calls.append(run)
            self._changed.notify()
        return await done

    def stop(self, seconds: float) -> None:
        """Finish what waits, and take nothing new."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if self._calls:  # one between two batches: neither waits for all of the other
                self._calls.popleft()()
            if not batch:
                continue
            jobs = list(dict.fromkeys(job for job, _ in batch))
            try:
                texts = [job.texts[place] for job, place in batch]
                for (job, place), translation in zip(batch, self._translated(texts, jobs[0].options), strict=True):
                    job.results[place] = translation
            except KnnSeqError as error:
                for job in jobs:
                    self._drop(job, error)
            except Exception as error:  # the server lives on, and says what went wrong where its log is read
                log.exception("A batch of %d sentences failed.", len(batch))
                for job in jobs:
                    self._drop(job, error)
            else:
                for job in jobs:
                    if len(job.results) == len(job.texts):
                        job.finish()
        for job in list(self._jobs):
            self._drop(job, Stopping())

    def _translated(self, texts: list[str], options: Mapping[str, Any]) -> list[Translation]:
        stopwatch = self.translator.stopwatch = Stopwatch(getattr(self.translator.model, "device", "cpu"))
        if self._prepare is not None:
            self._prepare()
        start = time.perf_counter()
        translations = self.translator.translate(texts, **options)
        if self._done is not None:
            self._done(len(texts), time.perf_counter() - start, stopwatch.seconds)
        return translations

    def _next(self) -> list[tuple[Job, int]] | None:
        """Some sentences of each request with the settings of the first; None: the server stops."""
        with self._changed:
            while not self._jobs and not self._calls:
                if self._stopping:
                    return None
                self._changed.wait()
            for job in [job for job in self._jobs if job.cancelled]:
                self._jobs.remove(job)
            if not self._jobs:
                return []
            settings = self._jobs[0].settings
            alike = [job for job in self._jobs if job.settings == settings]
            share = max(self.batch_size // len(alike), 1)
            batch: list[tuple[Job, int]] = []
            for most in (share, self.batch_size):  # a fair part of each, and then what is left of the batch
                for job in alike:
                    taken = min(most, len(job.texts) - job.begun, self.batch_size - len(batch))
                    batch += [(job, job.begun + i) for i in range(taken)]
                    job.begun += taken
            for job in alike:
                if job.begun:
                    self._jobs.remove(job)
                    if job.begun < len(job.texts):
                        self._jobs.append(job)  # behind those that have not had a turn
            return batch

    def _drop(self, job: Job, error: BaseException) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
        job.finish(error)


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)

"""Requests that wait for the model: sentences of several are translated together, and none waits behind a long one."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from knn_seq.decoding import Translation
from knn_seq.errors import KnnSeqError
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.serve.continuous import ContinuousBatch, settings_key
from knn_seq.translator import Translator

log = logging.getLogger(__name__)

T = TypeVar("T")
TOGETHER = 0.5  # of the sentences under way: so many enter together, since an encoder reads several at once ...
STEPS_TO_WAIT = 10  # ... but none waits longer than that for others

StepDone = Callable[[int, float, Mapping[str, float]], None]
"""Told how many sentences made a step, or were a batch, how many seconds it took, and which parts took how many."""


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
    over: bool = False  # it was answered, or nobody waits for it any more
    begun: int = 0  # sentences that were taken out of the queue
    results: dict[int, Translation] = field(default_factory=dict)

    def finish(self, error: BaseException | None = None) -> None:
        """Give the request what it waits for; from any thread."""
        self.over = True
        results = None if error is not None else [self.results[i] for i in range(len(self.texts))]
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_resolve, self.done, results, error)


class Taken(NamedTuple):
    """A sentence that was taken out of the queue."""

    job: Job
    place: int  # in its request

    @property
    def text(self) -> str:
        """The sentence."""
        return self.job.texts[self.place]

    def translated(self, translation: Translation) -> None:
        """Answer the request, if this was the last of its sentences."""
        self.job.results[self.place] = translation
        if len(self.job.results) == len(self.job.texts) and not self.job.over:
            self.job.finish()


class TranslationQueue:
    """The translations of one datastore, made in a thread of their own.

    Requests take turns, sentence by sentence.  A sentence enters those that are under way as soon as there is place; it
    waits for a batch only if it cannot be decoded step by step with others.

    Args:
        translator: What translates.
        batch_size: Sentences that are translated together.
        size: Sentences that may wait.
        prepare: Called before sentences are begun.
        done: Told of each step and batch.
    """

    def __init__(
        self,
        translator: Translator,
        batch_size: int,
        size: int,
        prepare: Callable[[], None] | None = None,
        done: StepDone | None = None,
    ) -> None:
        self.translator, self.batch_size, self.size = translator, batch_size, size
        self._prepare, self._done = prepare, done
        self._jobs: deque[Job] = deque()  # that have sentences which nobody has begun
        self._calls: deque[Callable[[], None]] = deque()
        self._continuous = ContinuousBatch.of(translator, batch_size)
        self._under_way: dict[int, Taken] = {}  # by their tickets
        self._for_batches: list[Taken] = []
        self._waited = 0  # steps since sentences entered
        self._step_seconds = self._other_seconds = 0.0  # of steps since the last other work, and of that
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="translations", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Sentences that nobody has begun to translate."""
        return sum(len(job.texts) - job.begun for job in list(self._jobs)) + len(self._for_batches)

    async def translate(self, texts: Sequence[str], options: Mapping[str, Any]) -> list[Translation]:
        """Translate sentences; those of a call that is cancelled leave the queue, wherever they are.

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
            self._drop(job)

    async def call(self, function: Callable[[], T]) -> T:
        """What a function gives that needs the model to itself, such as an explanation; it runs between two steps."""
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
        while self._wait():
            self._begin(self._take())
            if self._under_way:
                self._step()
            # What cannot take part in steps has half of the time, if there are any.
            if not self._under_way or self._step_seconds >= self._other_seconds:
                self._do_others()

    def _wait(self) -> bool:
        """Wait until there is something to do; False: the server stops, and all is done."""
        with self._changed:
            while not (self._jobs or self._calls or self._under_way or self._for_batches):
                if self._stopping:
                    return False
                self._changed.wait()
            return True

    def _take(self) -> list[Taken]:
        """As many sentences as there is place for: one of each request, then another one of each, and so on."""
        places = self.batch_size - len(self._for_batches)
        if self._continuous is not None:
            places = min(places, self._continuous.most - len(self._continuous))
        taken: list[Taken] = []
        with self._changed:
            if self._waited < STEPS_TO_WAIT and self.waiting < TOGETHER * len(self._under_way):
                return []
            while self._jobs and len(taken) < places:
                job = self._jobs.popleft()
                taken.append(Taken(job, job.begun))
                job.begun += 1
                if job.begun < len(job.texts):
                    self._jobs.append(job)
        self._waited = 0
        return taken

    def _begin(self, taken: Sequence[Taken]) -> None:
        """Let sentences enter those under way, or wait for a batch."""
        if taken and self._prepare is not None:
            self._prepare()
        for each in taken:
            try:
                ticket = None
                if self._continuous is not None and each.text.strip() and not each.job.over:
                    ticket = self._continuous.add(each.text, each.job.options)
            except Exception as error:
                self._fail([each.job], error)
                continue
            if ticket is None:
                self._for_batches.append(each)
            else:
                self._under_way[ticket] = each

    def _step(self) -> None:
        """One step of all sentences that are under way; those that nobody waits for leave."""
        assert self._continuous is not None
        for ticket in [ticket for ticket, each in self._under_way.items() if each.job.over]:
            self._continuous.cancel(ticket)
            del self._under_way[ticket]
        if not self._under_way:
            return
        self._waited += 1
        size, start = len(self._under_way), time.perf_counter()
        try:
            found = self._continuous.step()
        except Exception as error:  # whose sentence it was, batches of equal settings will show
            log.warning("%d sentences are translated again: %s", size, error)
            self._for_batches += self._under_way.values()
            self._under_way.clear()
            self._continuous = ContinuousBatch.of(self.translator, self.batch_size)
            return
        seconds = time.perf_counter() - start
        self._step_seconds += seconds
        for ticket, translation in found:
            self._under_way.pop(ticket).translated(translation)
        self._tell(size, seconds, self._continuous.stopwatch)

    def _do_others(self) -> None:
        """A function that was asked for and a batch, if there are any."""
        start = time.perf_counter()
        if self._calls:
            self._calls.popleft()()
        if self._for_batches:
            self._translate_batch()
        self._step_seconds, self._other_seconds = 0.0, time.perf_counter() - start

    def _translate_batch(self) -> None:
        """Translate sentences with the settings of the first."""
        there = [each for each in self._for_batches if not each.job.over]
        settings = settings_key(there[0].job.options) if there else ""
        batch = [each for each in there if settings_key(each.job.options) == settings][: self.batch_size]
        self._for_batches = [each for each in there if each not in batch]
        if not batch:
            return
        stopwatch = self.translator.stopwatch = Stopwatch(getattr(self.translator.model, "device", "cpu"))
        start = time.perf_counter()
        try:
            translations = self.translator.translate([each.text for each in batch], **batch[0].job.options)
        except Exception as error:
            self._fail([each.job for each in batch], error)
            return
        self._tell(len(batch), time.perf_counter() - start, stopwatch)
        for each, translation in zip(batch, translations, strict=True):
            each.translated(translation)

    def _tell(self, size: int, seconds: float, stopwatch: Stopwatch) -> None:
        if self._done is not None:
            self._done(size, seconds, dict(stopwatch.seconds))
        stopwatch.seconds.clear()

    def _fail(self, jobs: Sequence[Job], error: Exception) -> None:
        if not isinstance(error, KnnSeqError):  # the server lives on, and says what went wrong where its log is read
            log.error("Sentences of %d requests failed.", len(set(jobs)), exc_info=error)
        for job in jobs:
            if not job.over:
                job.finish(error)
            self._drop(job)

    def _drop(self, job: Job) -> None:
        """Begin none of a request's sentences any more, and let those that are under way leave."""
        with self._changed:
            job.over = True
            if job in self._jobs:
                self._jobs.remove(job)


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)

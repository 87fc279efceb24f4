"""Files of clients, translated in the background; jobs of all kinds, watched."""

from __future__ import annotations

import asyncio
import mimetypes
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import FileResponse
from starlette.datastructures import UploadFile as AnyUpload

from knn_seq.decoding import Translation
from knn_seq.documents import DOCUMENT_FORMATS
from knn_seq.explain import changed_tokens
from knn_seq.files.translate import open_for, translate_document, write_document
from knn_seq.protect import Attention
from knn_seq.serve.access import Access
from knn_seq.serve.jobs import Job, Jobs, JobState
from knn_seq.serve.memory import JobId
from knn_seq.serve.queue import QueueFull
from knn_seq.serve.schemas import ERRORS, may
from knn_seq.serve.service import Service
from knn_seq.serve.stores import Served, Stores
from knn_seq.serve.uploads import client_name, save_upload
from knn_seq.translator import Translator

T = TypeVar("T")
PAUSE_SECONDS = 0.5  # after which a full queue is asked again
AT_ONCE = 64  # sentences of a document that wait in the queue


class QueuedTranslator:
    """A translator whose sentences wait in the queue, as those of all other requests do.

    Args:
        served: The datastore.
        loop: Where the queue is served.
    """

    def __init__(self, served: Served, loop: asyncio.AbstractEventLoop) -> None:
        self._served, self._loop = served, loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._served.translator, name)

    @property
    def exact_matches(self) -> QueuedTranslator:
        """Who knows the translations that the memory has."""
        return self

    def target(self, source: str) -> str | None:
        """The memory's translation of a source, as the memory is now."""
        return self._served.exact_matches.targets([source]).get(source)

    def attention(self, translations: Sequence[Translation]) -> list[Attention | None]:
        """See `Translator.attention`."""
        return self._between_steps(partial(self._served.translator.attention, translations))

    def changed_tokens(self, translations: Sequence[Translation], **options: Any) -> list[list[bool]]:
        """See `changed_tokens`."""
        return self._between_steps(partial(changed_tokens, self._served.translator, translations, **options))

    def _between_steps(self, function: Callable[[], T]) -> T:
        """What a function gives that runs the model: hooks on a network see all that runs through it."""
        while True:
            try:
                return asyncio.run_coroutine_threadsafe(self._served.queue.call(function), self._loop).result()
            except QueueFull:
                time.sleep(PAUSE_SECONDS)

    def translate(self, sources: Sequence[str], **options: Any) -> list[Translation]:
        """Translate some sentences at a time; waits as long as the queue is full."""
        made: list[Translation] = []
        while len(made) < len(sources):
            part = sources[len(made) : len(made) + AT_ONCE]
            try:
                made += asyncio.run_coroutine_threadsafe(
                    self._served.queue.translate(part, options), self._loop
                ).result()
            except QueueFull:
                time.sleep(PAUSE_SECONDS)
        return made


def documents_api(stores: Stores, service: Service, access: Access, jobs: Jobs) -> APIRouter:
    """The routes of documents and jobs.

    Args:
        stores: What translates.
        service: Limits.
        access: Who may.
        jobs: The jobs.
    """
    router = APIRouter(prefix="/v1", tags=["documents"], responses=ERRORS)

    @router.post("/stores/{store}/documents", dependencies=[may(access, "translate")], status_code=202)
    async def translate_document(store: str, file: Annotated[UploadFile, File()]) -> JobId:
        """Translate a file in the background; `/v1/jobs/{job}` tells how far it is, and has the result."""
        return JobId(job=(await begin_document(stores.named(store), service, jobs, file)).id)

    @router.get("/jobs/{job}", dependencies=[may(access, "translate")])
    async def state(job: str) -> JobState:
        """How far a job is."""
        return jobs.state(job)

    @router.get("/jobs/{job}/result", dependencies=[may(access, "translate")], response_class=FileResponse)
    async def result(job: str) -> FileResponse:
        """The file that a job has made."""
        return download(jobs, job)

    return router


def document_suffixes() -> list[str]:
    """Endings of the names of files that can be translated."""
    return sorted({suffix for name in DOCUMENT_FORMATS.names() for suffix in DOCUMENT_FORMATS.get(name).suffixes})


async def begin_document(served: Served, service: Service, jobs: Jobs, file: AnyUpload) -> Job:
    """Begin to translate a file."""
    job = jobs.create("document", client_name(file))
    try:
        path = await asyncio.to_thread(save_upload, file, job, document_suffixes(), service.settings.largest_upload)
    except BaseException:
        jobs.delete(job)
        raise
    translator = QueuedTranslator(served, asyncio.get_running_loop())
    jobs.start(job, partial(_translate, translator, path))
    return job


def download(jobs: Jobs, identity: str) -> FileResponse:
    """A job's file, as one to be saved: no browser shows what a client has sent as a page of this server."""
    path, name = jobs.result(identity)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return FileResponse(path, filename=name, media_type=kind, content_disposition_type="attachment")


def _translate(queued: QueuedTranslator, path: Path, job: Job) -> dict[str, Any]:
    translator = cast(Translator, queued)
    document = open_for(translator, path)
    job.state.total = sum(segment.wanted for segment in document.segments)
    made = translate_document(translator, document, on_progress=job.progress, changed=QueuedTranslator.changed_tokens)
    write_document(job.result, made.data)
    report = made.report.to_dict()
    return {name: value for name, value in report.items() if name not in ("path", "output", "details")}

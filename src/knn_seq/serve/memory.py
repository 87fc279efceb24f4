"""The memory of a datastore: its sentence pairs, added, replaced, deleted, found, imported and exported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.background import BackgroundTask

from knn_seq.corpus import CORPUS_FORMATS, BadPair, SentencePair, open_corpus
from knn_seq.corpus.writers import PAIR_WRITERS
from knn_seq.datastore import Datastore
from knn_seq.live.find import pair_of
from knn_seq.live.lookup import Lookup
from knn_seq.serve.access import Access
from knn_seq.serve.errors import bad_request, not_found
from knn_seq.serve.jobs import Job, Jobs
from knn_seq.serve.schemas import ERRORS, may
from knn_seq.serve.service import Service, require_unicode
from knn_seq.serve.stores import Served, Stores
from knn_seq.serve.uploads import client_name, save_upload

LONGEST_SIDE = 4000  # characters of a side of a pair
IMPORTED_AT_ONCE = 128  # pairs of an import between which translations have their turn
CORRECTIONS = "corrections"  # the corpus of pairs that come from no file

Side = Annotated[str, Field(min_length=1, max_length=LONGEST_SIDE, pattern=r"\S")]
Label = Annotated[str, Field(min_length=1, max_length=200)]


class NewPair(BaseModel):
    """A sentence and its translation."""

    model_config = ConfigDict(extra="forbid")

    source: Side
    target: Side
    id: Label | None = Field(default=None, description="The pair's own name; left out, it gets one")
    corpus: Label | None = Field(default=None, description="Where it comes from")
    date: Annotated[str, Field(max_length=40)] | None = Field(default=None, description="ISO 8601; left out, now")


class NewPairs(BaseModel):
    """Pairs for the memory."""

    model_config = ConfigDict(extra="forbid")

    pairs: list[NewPair] = Field(min_length=1, max_length=1000)


class Pair(BaseModel):
    """A sentence pair of the memory."""

    id: str
    source: str
    target: str
    corpus: str | None
    date: str | None


class FoundPairs(BaseModel):
    """Some sentence pairs of the memory."""

    pairs: list[Pair]
    total: int = Field(description="How many there are, shown or not")


class Ids(BaseModel):
    """The names of pairs that were added, replaced or deleted."""

    ids: list[str]


class JobId(BaseModel):
    """A job that was begun."""

    job: str


def memory_api(stores: Stores, service: Service, access: Access, jobs: Jobs) -> APIRouter:
    """The routes of memories.

    Args:
        stores: The datastores.
        service: Limits.
        access: Who may.
        jobs: Who imports.
    """
    router = APIRouter(prefix="/v1/stores/{store}", tags=["memory"], responses=ERRORS)

    @router.get("/memory", dependencies=[may(access, "translate")])
    async def find(
        store: str,
        q: Annotated[str, Field(max_length=1000)] = "",
        corpus: str | None = None,
        limit: Annotated[int, Field(ge=1, le=500)] = 50,
        offset: Annotated[int, Field(ge=0, le=1 << 40)] = 0,
    ) -> FoundPairs:
        """The pairs that share words with a text, best first; without one all of them, newest first."""
        served = stores.named(store)
        return await asyncio.to_thread(_found, served, q, corpus, limit, offset)

    @router.post("/memory", dependencies=[may(access, "edit")])
    async def add(store: str, new: NewPairs) -> Ids:
        """Add pairs; they are on the disk when this is answered, and the next translation uses them."""
        return Ids(ids=await write_pairs(service, stores.named(store), new.pairs, update=False))

    @router.put("/memory", dependencies=[may(access, "edit")])
    async def update(store: str, new: NewPairs) -> Ids:
        """Put pairs in the place of those with the same id or, without one, with the same source."""
        return Ids(ids=await write_pairs(service, stores.named(store), new.pairs, update=True))

    @router.delete("/memory/{id}", dependencies=[may(access, "edit")])
    async def delete(store: str, id: str) -> Ids:
        """Delete a pair."""
        served = stores.named(store)
        gone = await service.guarded(served, asyncio.to_thread(_datastore(served).delete, ids=[id]))
        if not gone:
            raise not_found("There is no such pair.")
        return Ids(ids=gone)

    @router.delete("/memory", dependencies=[may(access, "admin")])
    async def delete_corpus(store: str, corpus: Label) -> Ids:
        """Delete all pairs of a corpus."""
        served = stores.named(store)
        return Ids(ids=await service.guarded(served, asyncio.to_thread(_datastore(served).delete, corpus=corpus)))

    @router.post("/imports", dependencies=[may(access, "admin")], status_code=202)
    async def import_file(store: str, file: Annotated[UploadFile, File()]) -> JobId:
        """Import a TMX, XLIFF, PO, TSV or JSONL file in the background; `/v1/jobs/{job}` tells how far it is."""
        served = stores.named(store)
        job = jobs.create("import", client_name(file))
        try:
            path = await asyncio.to_thread(save_upload, file, job, import_suffixes(), service.settings.largest_upload)
        except BaseException:
            jobs.delete(job)
            raise
        loop = asyncio.get_running_loop()

        def call(function: Callable[[], list[str]]) -> list[str]:
            return asyncio.run_coroutine_threadsafe(served.queue.call(function), loop).result()

        jobs.start(job, partial(_import, served, path, call))
        return JobId(job=job.id)

    @router.get("/export", dependencies=[may(access, "translate")], response_class=FileResponse)
    async def export(store: str, format: str = "tmx", corpus: str | None = None) -> FileResponse:
        """All pairs as a file."""
        served = stores.named(store)
        if format not in PAIR_WRITERS.names():
            raise bad_request(f"There is no format '{format[:32]}': choose from {', '.join(PAIR_WRITERS.names())}.")
        job = jobs.create("document", f"{served.name}.{format}")
        try:
            await service.guarded(served, asyncio.to_thread(_export, served, job.result, format, corpus))
        except BaseException:
            jobs.delete(job)
            raise
        return FileResponse(job.result, 200, filename=job.state.name, background=BackgroundTask(jobs.delete, job))

    return router


async def write_pairs(service: Service, served: Served, pairs: list[NewPair], update: bool) -> list[str]:
    """Write pairs between two batches; they are on the disk when this returns.

    Args:
        service: Tells clients what went wrong.
        served: The datastore.
        pairs: The pairs.
        update: Let each take the place of the one with its id or, if there is none, of those with its source.
    """
    units = [
        SentencePair(
            pair.source.strip(), pair.target.strip(), f"pair {number}", id=pair.id, corpus=pair.corpus or CORRECTIONS,
            date=pair.date or None,
        )
        for number, pair in enumerate(pairs, 1)
    ]  # fmt: skip
    require_unicode([text for unit in units for text in (unit.source, unit.target, unit.id or "", unit.corpus or "")])
    return await service.guarded(served, served.queue.call(partial(served.translator.add, units, update)))


def import_suffixes() -> list[str]:
    """Endings of the names of files that can be imported."""
    own = [suffix for name in CORPUS_FORMATS.names() for suffix in CORPUS_FORMATS.get(name).suffixes]
    return [*own, *(f"{suffix}.gz" for suffix in own)]


def _datastore(served: Served) -> Datastore:
    """The datastore as it is on the disk now, for this request alone."""
    return Datastore(served.store.path)


def _found(served: Served, q: str, corpus: str | None, limit: int, offset: int) -> FoundPairs:
    store = _datastore(served).snapshot()
    if q.strip():
        found = store.find(q, None, corpus)
        return FoundPairs(pairs=[_pair(each) for each in found[offset : offset + limit]], total=len(found))
    numbers = store.live_sentences().tolist() if corpus is None else Lookup(store).by_corpus(corpus)
    shown = numbers[::-1][offset : offset + limit]
    return FoundPairs(pairs=[_pair(pair_of(store, number)) for number in shown], total=len(numbers))


def _pair(pair: SentencePair) -> Pair:
    return Pair(id=pair.id or "", source=pair.source, target=pair.target, corpus=pair.corpus, date=pair.date)


def _import(
    served: Served, path: Path, call: Callable[[Callable[[], list[str]]], list[str]], job: Job
) -> dict[str, Any]:
    """Read a file once to know that it can be read, and then add it in parts."""
    bad = total = 0
    for unit in _units(served, path, job.state.name):
        bad, total = bad + isinstance(unit, BadPair), total + isinstance(unit, SentencePair)
    job.state.total = total
    waiting: list[SentencePair] = []
    added = 0

    def flush() -> None:
        nonlocal added
        if waiting:
            added += len(call(partial(served.translator.add, list(waiting), True)))
            job.progress(len(waiting))
            waiting.clear()

    for unit in _units(served, path, job.state.name):
        if isinstance(unit, SentencePair):
            waiting.append(unit)
        if len(waiting) == IMPORTED_AT_ONCE:
            flush()
    flush()
    return {"pairs": total, "added": added, "left_out": bad + total - added}


def _units(served: Served, path: Path, name: str) -> Iterator[SentencePair | BadPair]:
    corpus = open_corpus(path)
    corpus.bind(served.translator.model)
    for unit in corpus:
        yield unit._replace(corpus=name) if isinstance(unit, SentencePair) else unit


def _export(served: Served, path: Path, format: str, corpus: str | None) -> None:
    with path.open("xb") as stream:
        PAIR_WRITERS.get(format)().write(_datastore(served).live_pairs(corpus), stream, served.source, served.target)

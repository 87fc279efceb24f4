"""Work that takes longer than a request: it is begun by one, watched by others, and forgotten after a while.

A job is a folder with its state and its files.  So every process of a server knows it, and nothing of it stays in
memory; its name is random and long, and so is the only key to it that a client needs.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from knn_seq.errors import DamagedFile, KnnSeqError
from knn_seq.serve.errors import RequestError, not_found
from knn_seq.storage.atomic import read_json, write_json

log = logging.getLogger(__name__)

KEPT_SECONDS = 3600  # of what nobody has deleted
AT_ONCE = 2  # jobs that a process works on
MOST = 64  # jobs that a server keeps
TELL_SECONDS = 0.2  # between two notes of how far a job is
STATE, RESULT = "state.json", "result"
_ID = re.compile(r"[\w-]{22}", re.ASCII)


class JobState(BaseModel):
    """How far a job is."""

    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    kind: Literal["import", "document"]
    name: str = Field(description="Of the file, as the client called it")
    done: int = Field(default=0, description="Sentence pairs, or segments of a document, that are finished")
    total: int | None = Field(default=None, description="How many there are, if that is known")
    error: str | None = None
    report: dict[str, Any] | None = Field(default=None, description="Figures of what was done")
    process: str = Field(default_factory=lambda: f"{os.getpid()}@{platform.node()}", exclude=True)


class Stopped(KnnSeqError):
    """The server stops, or nobody waits."""


@dataclass
class Job:
    """A job that this process works on."""

    id: str
    folder: Path
    state: JobState
    stopping: threading.Event
    told: float = 0.0
    cancelled: bool = False  # nobody waits for it any more

    @property
    def result(self) -> Path:
        """The file that it makes."""
        return self.folder / RESULT

    def progress(self, done: int) -> None:
        """Some more is done."""
        if self.stopping.is_set():
            raise Stopped("The server was stopped before this was finished.")
        if self.cancelled:
            raise Stopped("The client has gone away.")
        self.state.done += done
        if time.monotonic() - self.told > TELL_SECONDS:
            self.save()

    def save(self) -> None:
        """Let others know how far it is."""
        self.told = time.monotonic()
        write_json(self.folder / STATE, self.state.model_dump() | {"process": self.state.process})


class Jobs:
    """The jobs of a server.

    Args:
        folder: Where they lie; processes of one server have the same.  None: a new temporary folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._own = None if folder else tempfile.TemporaryDirectory(prefix="knn-seq-", ignore_cleanup_errors=True)
        self.folder = folder or Path(self._own.name)  # type: ignore[union-attr]
        self._pool = ThreadPoolExecutor(AT_ONCE, "jobs")
        self._stopping = threading.Event()

    def create(self, kind: Literal["import", "document"], name: str) -> Job:
        """A job that nobody works on yet; its folder is there for its files."""
        self._make_place()
        if len(list(self.folder.iterdir())) >= MOST:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "The server has too many files to work on.", 30)
        identity = secrets.token_urlsafe(16)
        folder = self.folder / identity
        folder.mkdir(mode=0o700)
        job = Job(identity, folder, JobState(kind=kind, name=name), self._stopping)
        job.save()
        return job

    def start(self, job: Job, work: Callable[[Job], dict[str, Any] | None]) -> None:
        """Let work be done; what it returns is the report, and the files that it was given are deleted.

        Args:
            job: The job.
            work: Does it, in a thread.
        """

        def run() -> None:
            try:
                job.state.state = "running"
                job.progress(0)
                job.state.report = work(job)
                job.state.state = "done"
            except KnnSeqError as error:
                job.state.state, job.state.error = "failed", _without_path(str(error), job)
            except Exception:
                log.exception("The job %s failed.", job.state.kind)
                job.state.state, job.state.error = "failed", "Internal error; the server's log says more."
            finally:
                for path in job.folder.iterdir():
                    if path.name not in (STATE, RESULT):
                        path.unlink()
                job.save()

        self._pool.submit(run)

    def state(self, identity: str) -> JobState:
        """How far a job is."""
        try:
            found = JobState(**read_json(self._folder(identity) / STATE))
        except (FileNotFoundError, DamagedFile, ValidationError, TypeError):
            raise not_found("There is no such job (any more).") from None
        if found.state in ("waiting", "running") and not _runs(found.process):
            found.state, found.error = "failed", "The process that worked on it has ended: try again."
        return found

    def result(self, identity: str) -> tuple[Path, str]:
        """The file that a job has made, and what the client calls it."""
        state, path = self.state(identity), self._folder(identity) / RESULT
        if not path.exists():
            raise not_found("This job has made no file (yet).")
        return path, state.name

    def delete(self, job: Job) -> None:
        """Forget a job and its files."""
        shutil.rmtree(job.folder, ignore_errors=True)

    def close(self) -> None:
        """Stop what runs."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._own is not None:
            self._own.cleanup()

    def _folder(self, identity: str) -> Path:
        if not _ID.fullmatch(identity):  # no other text of a client becomes a part of a path
            raise not_found("There is no such job (any more).")
        return self.folder / identity

    def _make_place(self) -> None:
        """Delete what is old and, if there are too many, what has been finished for longest."""
        ages = []
        for folder in self.folder.iterdir():
            with suppress(FileNotFoundError):
                ages.append((folder.stat().st_mtime, folder))
        surplus = len(ages) + 1 - MOST
        for changed, folder in sorted(ages):
            if time.time() - changed > KEPT_SECONDS or (surplus > 0 and self._is_finished(folder.name)):
                shutil.rmtree(folder, ignore_errors=True)
                surplus -= 1

    def _is_finished(self, identity: str) -> bool:
        try:
            return self.state(identity).state in ("done", "failed")
        except RequestError:  # it is just being made
            return False


def _runs(process: str) -> bool:
    """Whether a process runs; one on another machine is held to."""
    number, _, node = process.partition("@")
    if node != platform.node():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _without_path(sentence: str, job: Job) -> str:
    """An error's sentence with the client's name of the file instead of ours."""
    return re.sub(rf"{re.escape(str(job.folder))}/[\w.-]+", lambda _: job.state.name, sentence)

"""Run a server until it is told to stop: one process, or several that share port, datastores and figures."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knn_seq.datastore import Datastore
from knn_seq.errors import InvalidSetting
from knn_seq.serve.settings import ServerSettings
from knn_seq.serve.shared_port import bound_socket

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger(__name__)

CONFIGURATION = "KNN_SEQ_SERVE"  # what worker processes are told
THREADS = "OMP_NUM_THREADS"  # torch and faiss read it
JOBS, METRICS = "jobs", "metrics"  # folders that worker processes share
ANSWER_SECONDS = 30  # after which a worker process that does not answer its supervisor is replaced


def serve(named: dict[str, Path], settings: ServerSettings) -> None:
    """Serve datastores; returns when the process is told to stop, and what runs is finished.

    Args:
        named: The datastores' folders by their names.
        settings: Where, for whom and how much.
    """
    import uvicorn

    if settings.jobs_folder is not None:
        try:
            settings.jobs_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidSetting(f"No folder for jobs at {settings.jobs_folder}: {error.strerror}.") from None
    logging.getLogger("knn_seq.runtime.progress").setLevel(logging.WARNING)  # a server writes no bars
    for name, path in named.items():  # what cannot be is refused before anything is loaded
        store = Datastore(path)
        log.info("%s: %d sentence pairs, %s", name, store.manifest.counts.sentences, store.manifest.model.spec)
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": int(settings.shutdown_seconds),
        "timeout_worker_healthcheck": ANSWER_SECONDS,
    }
    with suppress(KeyboardInterrupt):  # a signal to stop, when all is done
        if settings.engine == "ray":
            _serve_on_ray(named, settings, options)
        elif settings.workers == 1:
            from knn_seq.serve.app import make_app

            with bound_socket(settings.host, settings.port) as port:
                app = make_app(named, settings)
                log.info("http://%s:%d/", settings.host, port.getsockname()[1])
                uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[port])
        else:
            _serve_in_processes(named, settings, options)


def worker_app() -> FastAPI:
    """The application of a worker process."""
    from knn_seq.serve.app import make_app

    told = json.loads(os.environ[CONFIGURATION])
    paths = {name: Path(path) for name, path in told["stores"].items()}
    given = told["settings"]
    for name in ("api_keys", "jobs_folder"):
        given[name] = given[name] and Path(given[name])
    return make_app(paths, ServerSettings(**{**given, "cors_origins": tuple(given["cors_origins"])}))


def _serve_on_ray(named: dict[str, Path], settings: ServerSettings, options: dict[str, Any]) -> None:
    """Take requests here, and let replicas answer them."""
    import uvicorn

    from knn_seq.serve.ray_replicas import front_app, start_replicas, stop_replicas

    folder = settings.jobs_folder or Path(tempfile.mkdtemp(prefix="knn-seq-"))
    try:
        handle = start_replicas(named, replace(settings, jobs_folder=folder), settings.ray_address)
        log.info("http://%s:%d/ with %d replicas", settings.host, settings.port, settings.workers)
        uvicorn.Server(uvicorn.Config(front_app(handle, settings), **options)).run()
    finally:
        stop_replicas()
        if settings.jobs_folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def _serve_in_processes(named: dict[str, Path], settings: ServerSettings, options: dict[str, Any]) -> None:
    """Let uvicorn's supervisor keep worker processes: one that ends is replaced."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    if settings.port == 0:
        raise InvalidSetting("Several workers share a port: give one that is not 0.")
    folder = Path(tempfile.mkdtemp(prefix="knn-seq-"))
    told = worker_environment(named, settings, folder)
    os.environ |= told
    try:
        for name in (JOBS, METRICS):
            (folder / name).mkdir()
        log.info("http://%s:%d/ with %d processes", settings.host, settings.port, settings.workers)
        config = uvicorn.Config(f"{__name__}:worker_app", factory=True, workers=settings.workers, **options)
        with bound_socket(settings.host, settings.port, settings.workers) as port:
            Multiprocess(config, sockets=[port]).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name in told:
            os.environ.pop(name, None)


def worker_environment(named: dict[str, Path], settings: ServerSettings, folder: Path) -> dict[str, str]:
    """What worker processes are told, with the threads that each of them has of the machine's.

    Args:
        named: The datastores' folders by their names.
        settings: Those of the server.
        folder: Where they keep what they share.
    """
    from knn_seq.serve.metrics import SHARED

    shared = replace(settings, jobs_folder=settings.jobs_folder or folder / JOBS)
    stores = {name: str(path.resolve()) for name, path in named.items()}
    told = {
        SHARED: str(folder / METRICS),
        CONFIGURATION: json.dumps({"stores": stores, "settings": asdict(shared)}, default=str),
    }
    if THREADS not in os.environ:
        told[THREADS] = str(max(1, (os.cpu_count() or 1) // settings.workers))
    return told

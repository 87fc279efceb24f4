"""Workers in processes of their own, on this machine or on the nodes of a cluster, through Ray."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from knn_seq.build.engine.base import ENGINES, Engine, PieceProgress, Work
from knn_seq.build.engine.cluster import Allocation, allocate_workers, connect, first_line, import_ray
from knn_seq.build.engine.ray_worker import PortableModel, RayWorker
from knn_seq.errors import KnnSeqError
from knn_seq.models import Model
from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings

POLL_SECONDS = 0.5
PROGRESS_SECONDS = 2.0
WAITING_SECONDS = 30.0  # without a worker, until the user is warned
ATTEMPTS = 3  # workers that may die of one piece: something is wrong with it, or with the memory of the node
THREAD_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "TOKENIZERS_PARALLELISM")  # how threads wait for each other

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Slot:
    """A worker, and what it does."""

    actor: Any
    task: Any  # of Ray: the piece it works on, or its start; None: it is idle
    piece: int | None = None


@ENGINES.register("ray")
class RayEngine(Engine):
    """Several workers, each of which loads the model once.

    A worker that dies is replaced, and its piece done again by whoever is free: with pieces in the hands of Ray's own
    restarts, those of a node that never comes back would wait for ever.
    """

    def __init__(self, settings: BuildSettings, model: Model | None = None) -> None:
        super().__init__(settings, model)
        self._ray = import_ray()
        self._allocation: Allocation | None = None
        self._slots: list[_Slot] = []
        self._connected = self._started_ray = False  # by this engine

    def start(self, load_model: bool = False) -> None:
        """Connect to a Ray cluster, or start one on this machine, and let the workers start."""
        if self._allocation is not None:
            return
        if not self._ray.is_initialized():
            address = self.settings.ray_address or os.environ.get("RAY_ADDRESS")
            self._started_ray = connect(self._ray, address, self.settings.workers)
            self._connected = True
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        on_cpu = self.model is not None and (self.model.settings.device or "").startswith("cpu")
        self._allocation = allocate_workers(nodes, self.settings.workers, self.settings.gpus_per_worker, on_cpu)
        self._slots = [self._start_worker(self._allocation, load_model) for _ in range(self._allocation.workers)]

    def run(self, pieces: Sequence[Work], progress: Progress) -> None:
        """See `Engine.run`."""
        if pieces:
            self.start()
            _Dispatcher(self, self._ray, self._slots, pieces, PieceProgress(pieces, progress)).run()

    def close(self) -> None:
        """Stop the workers, and Ray if it was started or connected to here."""
        for slot in self._slots:
            self._ray.kill(slot.actor)
        self._slots.clear()
        if self._connected:
            self._ray.shutdown()
        self._connected, self._started_ray, self._allocation = False, False, None

    def replace(self, slot: _Slot) -> None:
        """Start a worker in the place of one that died."""
        assert self._allocation is not None
        new = self._start_worker(self._allocation)
        slot.actor, slot.task, slot.piece = new.actor, new.task, None

    def _start_worker(self, allocation: Allocation, load_model: bool = False) -> _Slot:
        threads = os.environ.get("OMP_NUM_THREADS", str(allocation.cpus))
        options: dict[str, Any] = {"num_cpus": allocation.cpus, "num_gpus": allocation.gpus, "max_restarts": 0}
        # Processes of a Ray that was started here inherit the environment; with one of its own a worker would be
        # another process than the one that Ray has started meanwhile.
        if not self._started_ray:
            variables = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
            options["runtime_env"] = {"env_vars": {**variables, "OMP_NUM_THREADS": threads}}
        model = None if self.model is None else PortableModel.of(self.model, allocation.gpus > 0)
        actor = self._ray.remote(**options)(RayWorker).remote(model, int(threads.partition(",")[0]))
        return _Slot(actor, actor.start.remote(load_model))


class _Dispatcher:
    """Gives pieces to workers until all are done."""

    def __init__(
        self, engine: RayEngine, ray: Any, slots: list[_Slot], pieces: Sequence[Work], progress: PieceProgress
    ) -> None:
        self.engine, self.ray, self.slots, self.pieces, self.progress = engine, ray, slots, pieces, progress
        self.waiting, self.unfinished = deque(range(len(pieces))), len(pieces)
        self.deaths: Counter[int | None] = Counter()  # by piece; None: before the worker got one
        self.last_progress = self.last_worker = time.monotonic()
        self.warned = False

    def run(self) -> None:
        while self.unfinished:
            for slot in self.slots:
                if slot.task is None and self.waiting:
                    slot.piece = self.waiting.popleft()
                    slot.task = slot.actor.run.remote(self.pieces[slot.piece])
            busy = {slot.task: slot for slot in self.slots if slot.task is not None}
            ready, _ = self.ray.wait(list(busy), timeout=POLL_SECONDS)
            for task in ready:
                self._finish_task(busy[task])
            self._show_progress()
            self._warn_without_workers()

    def _finish_task(self, slot: _Slot) -> None:
        task, slot.task = slot.task, None
        number, slot.piece = slot.piece, None
        try:
            self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, KnnSeqError):
                raise error.cause from None
            raise  # a bug: the traceback of the worker is in it
        except self.ray.exceptions.RayError as error:
            self.deaths[number] += 1
            if self.deaths[number] >= ATTEMPTS:
                raise _too_many_deaths(number, error) from error
            if number is not None:
                self.waiting.appendleft(number)
                self.progress.set(number, self.pieces[number].done())
            self.engine.replace(slot)
            return
        if number is not None:
            self.progress.set(number, self.pieces[number].size)
            self.unfinished -= 1

    def _show_progress(self) -> None:
        """Show what the workers have brought to the disk.

        They are not asked: for that Ray would have to run their work in a thread, and glibc gives memory of threads
        back to the system again and again, which makes it a tenth slower.
        """
        if time.monotonic() - self.last_progress < PROGRESS_SECONDS:
            return
        self.last_progress = time.monotonic()
        for slot in self.slots:
            if slot.piece is not None:
                self.progress.set(slot.piece, self.pieces[slot.piece].done())

    def _warn_without_workers(self) -> None:
        if any(slot.task is None or slot.piece is not None for slot in self.slots):
            self.last_worker = time.monotonic()
        elif not self.warned and time.monotonic() - self.last_worker >= WAITING_SECONDS:
            log.warning("The build waits for workers: they are starting, or the cluster is busy.")
            self.warned = True


def _too_many_deaths(number: int | None, error: BaseException) -> KnnSeqError:
    reason = first_line(error)
    if number is None:
        return KnnSeqError(
            f"Workers cannot start on the Ray cluster ({reason}): check that knn-seq is installed on every node for "
            "the same Python."
        )
    return KnnSeqError(
        f"{ATTEMPTS} workers died of the same piece of work ({reason}): check the memory of the nodes, and run the "
        "same command again to resume."
    )

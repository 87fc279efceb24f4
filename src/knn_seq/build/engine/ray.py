"""Workers in processes of their own, on this machine or on the nodes of a cluster, through Ray."""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch

from knn_seq.build.engine.base import ENGINES, Engine, PieceProgress, Work, Worker
from knn_seq.build.engine.home import HandOver, Home, Substitute
from knn_seq.errors import KnnSeqError
from knn_seq.models import Fingerprint, Model, load_model
from knn_seq.models.base import absolute_name
from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings, ModelSettings

POLL_SECONDS = 0.5
LOOK_SECONDS = 2.0
CONNECT_SECONDS = 10.0
WAITING_SECONDS = 30.0  # without a worker, until the user is told what the build waits for
ATTEMPTS = 3  # workers that may die of one piece: something is wrong with it, or with the memory of the node
OBJECT_STORE_BYTES = 100 << 20  # of a Ray that is started here: nothing large goes through it
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # Ray speaks gRPC
HTTP2_SETTINGS = 4  # the kind of frame that a server answers with
HERE = (None, "local")  # addresses of a Ray that is still to be started
INHERITED = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "TOKENIZERS_PARALLELISM")  # how threads wait for each other


class Share(NamedTuple):
    """What each worker gets."""

    workers: int
    cpus: int
    gpus: float


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
        self._ray = _import_ray()
        self._share: Share | None = None
        self._slots: list[_Slot] = []
        self._own = self._at_home = False
        self._home: Home | None = None

    def start(self, load: bool = False) -> None:
        """Connect to a Ray cluster, or begin to start one on this machine, and let the workers start."""
        if self._share is not None or self._home is not None:
            return
        address = self.settings.ray_address or os.environ.get("RAY_ADDRESS")
        there = self._ray.is_initialized() or address not in HERE
        if there or self.settings.gpus_per_worker:  # it may not have as many, which must show at once
            self._take_hold(address, load)
        else:
            self._home = Home(partial(self._take_hold, address, load), self._let_go)

    def _take_hold(self, address: str | None, load: bool) -> None:
        if not self._ray.is_initialized():
            self._at_home = _connect(self._ray, address, self.settings.workers)
            self._own = True
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        on_cpu = self.model is not None and (self.model.settings.device or "").startswith("cpu")
        share = allocate_workers(nodes, self.settings.workers, self.settings.gpus_per_worker, on_cpu)
        self._slots += [self._new_slot(share, load) for _ in range(share.workers)]
        self._share = share

    def run(self, pieces: Sequence[Work], progress: Progress) -> None:
        """See `Engine.run`."""
        if not pieces:
            return
        self.start()
        tally = PieceProgress(pieces, progress)
        if self._home is not None:
            if self.model is not None and getattr(self.model, "device", torch.device("cpu")).type == "cpu":
                self._work_meanwhile(self.model, pieces, tally)
            self._home.started()
        _Dispatcher(self, self._ray, self._slots, pieces, tally).run()

    def _work_meanwhile(self, model: Model, pieces: Sequence[Work], tally: PieceProgress) -> None:
        """Until a worker is there, do pieces here; the last of them is left as it is then."""
        with suppress(HandOver):
            for number, piece in enumerate(pieces):
                if self._worker_ready():
                    return
                piece.run(Substitute(model, tally, number, self._worker_ready))

    def _worker_ready(self) -> bool:
        assert self._home is not None
        tasks = [slot.task for slot in self._slots] if self._home.started(0) else []
        return None in tasks or bool(tasks and self._ray.wait(tasks, timeout=0)[0])

    def release(self) -> None:
        """See `Engine.release`."""
        if self._home is not None:
            self._home.leave()

    def close(self) -> None:
        """Stop the workers, and Ray if it was started or connected to here."""
        if self._home is not None:
            self._home.end()
            self._home = None
        else:
            self._let_go()

    def _let_go(self) -> None:
        for slot in self._slots:
            self._ray.kill(slot.actor)
        self._slots.clear()
        if self._own:
            self._ray.shutdown()
        self._own, self._at_home, self._share = False, False, None

    def _new_slot(self, share: Share, load: bool = False) -> _Slot:
        threads = os.environ.get("OMP_NUM_THREADS", str(share.cpus))
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        # Processes of a Ray that was started here inherit all that; with an environment of its own a worker would be
        # another process than the one that Ray has started meanwhile.
        own = {} if self._at_home else {"runtime_env": {"env_vars": {**environment, "OMP_NUM_THREADS": threads}}}
        worker = self._ray.remote(
            num_cpus=share.cpus,
            num_gpus=share.gpus,
            max_restarts=0,
            **own,
        )(RayWorker)
        actor = worker.remote(_portable_settings(self.model, share.gpus > 0), int(threads.partition(",")[0]))
        return _Slot(actor, actor.ready.remote(load))

    def replace(self, slot: _Slot) -> None:
        """Start a worker in the place of one that died."""
        assert self._share is not None
        new = self._new_slot(self._share)
        slot.actor, slot.task, slot.piece = new.actor, new.task, None


class _Dispatcher:
    """Gives pieces to workers until all are done."""

    def __init__(
        self, engine: RayEngine, ray: Any, slots: list[_Slot], pieces: Sequence[Work], tally: PieceProgress
    ) -> None:
        self.engine, self.ray, self.slots, self.pieces, self.tally = engine, ray, slots, pieces, tally
        self.waiting, self.left = deque(range(len(pieces))), len(pieces)
        self.deaths: Counter[int | None] = Counter()
        self.started, self.told = time.monotonic(), False
        self.looked = time.monotonic()

    def run(self) -> None:
        while self.left:
            for slot in self.slots:
                if slot.task is None and self.waiting:
                    slot.piece = self.waiting.popleft()
                    slot.task = slot.actor.run.remote(self.pieces[slot.piece])
            busy = {slot.task: slot for slot in self.slots if slot.task is not None}
            ready, _ = self.ray.wait(list(busy), timeout=POLL_SECONDS)
            for task in ready:
                self._end(busy[task])
            self._look()
            self._tell()

    def _end(self, slot: _Slot) -> None:
        task, slot.task = slot.task, None
        number, slot.piece = slot.piece, None
        try:
            mistake = self.ray.get(task)
        except self.ray.exceptions.RayTaskError:
            raise  # a bug: the traceback of the worker is in it
        except self.ray.exceptions.RayError as error:
            self.deaths[number] += 1
            if self.deaths[number] >= ATTEMPTS:
                raise _died(number, error) from error
            if number is not None:
                self.waiting.appendleft(number)
                self.tally.set(number, self.pieces[number].done())
            self.engine.replace(slot)
            return
        if mistake is not None:
            raise KnnSeqError(mistake)
        if number is not None:
            self.tally.set(number, self.pieces[number].size)
            self.left -= 1

    def _look(self) -> None:
        """Show what the workers have brought to the disk.

        They are not asked: for that Ray would have to run their work in a thread, and glibc gives memory of threads
        back to the system again and again, which makes it a tenth slower.
        """
        if time.monotonic() - self.looked < LOOK_SECONDS:
            return
        self.looked = time.monotonic()
        for slot in self.slots:
            if slot.piece is not None:
                self.tally.set(slot.piece, self.pieces[slot.piece].done())

    def _tell(self) -> None:
        nobody = all(slot.task is not None and slot.piece is None for slot in self.slots)
        if not nobody:
            self.started = time.monotonic()
        elif not self.told and time.monotonic() - self.started >= WAITING_SECONDS:
            print(
                "The build waits for workers: they are starting, or the cluster has no room yet.",
                file=sys.stderr,
                flush=True,
            )
            self.told = True


class RayWorker(Worker):
    """One of the processes.

    Args:
        model: The settings of the model, and the fingerprint it must have; None: the work needs no model.
        threads: That it may compute with.
    """

    def __init__(self, model: tuple[ModelSettings, Fingerprint] | None, threads: int) -> None:
        self._wanted, self._threads = model, threads

    def ready(self, load: bool) -> str | None:
        """Return as soon as the process is there, and the model if it is to be loaded; what is wrong, as `run`."""
        return self._without_errors(lambda: self.model if load else None)

    @cached_property
    def model(self) -> Model:
        """See `Worker.model`."""
        if self._wanted is None:
            raise KnnSeqError("This work needs a model, and the workers were given none.")
        settings, fingerprint = self._wanted
        model = load_model(settings)
        if model.fingerprint != fingerprint:
            raise KnnSeqError(
                f"On the node {socket.gethostname()} the model {settings.name} is another one than where the build was "
                "started: give a path that all nodes share."
            )
        return model

    def report(self, done: int) -> None:
        """Say nothing: the command sees on the disk how far the work is."""

    def run(self, piece: Work) -> str | None:
        """Do a piece; returns what the user has to mend, if there is something."""
        if torch.get_num_threads() != self._threads:  # once it is told, MKL uses all of them for the smallest product
            torch.set_num_threads(self._threads)
        return self._without_errors(lambda: piece.run(self))

    def _without_errors(self, work: Callable[[], object]) -> str | None:
        try:
            work()
        except KnnSeqError as error:
            return str(error)
        return None


def allocate_workers(
    nodes: Sequence[Mapping[str, float]], workers: int | None, gpus_per_worker: float | None, on_cpu: bool = False
) -> Share:
    """How many workers a cluster gets, and what each of them holds of its node.

    Args:
        nodes: The resources of each node, "CPU" and "GPU".
        workers: What the user wants; None: one a GPU, or without GPUs one a node.
        gpus_per_worker: What the user wants; None: one, if there are any.
        on_cpu: The user wants no GPU.
    """
    any_gpus = any(node.get("GPU", 0) for node in nodes) and not on_cpu
    gpus = gpus_per_worker if gpus_per_worker is not None else float(any_gpus)

    def room(cpus: int) -> int:
        return sum(
            int(min(node.get("CPU", 0) // cpus, node.get("GPU", 0) / gpus if gpus else math.inf)) for node in nodes
        )

    wanted = workers or (room(1) if gpus else sum(node.get("CPU", 0) >= 1 for node in nodes))
    if not wanted or room(1) < wanted:
        each = f" with {gpus:g} GPUs each" if gpus else ""
        raise KnnSeqError(
            f"The Ray cluster has room for {room(1)} workers{each}, not for {wanted or 1}: choose --workers or "
            "--gpus-per-worker to fit it."
        )
    most = int(max(node.get("CPU", 0) for node in nodes))
    return Share(wanted, next(cpus for cpus in range(most, 0, -1) if room(cpus) >= wanted), gpus)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise KnnSeqError("The engine 'ray' needs Ray: install it with `pip install knn-seq[ray]`.") from error
    return ray


def _connect(ray: Any, address: str | None, workers: int | None) -> bool:
    """Connect to a cluster, or start one here; returns whether it was started here."""
    quietly = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None or address in HERE:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # else anything else on the machine comes first
        cores = max(os.cpu_count() or 1, workers or 1)
        ray.init("local", num_cpus=cores, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quietly)
        return True
    try:
        _require_reachable(address)
        ray.init(address, **quietly)
    except (OSError, ValueError, RuntimeError) as error:
        raise KnnSeqError(
            f"No Ray cluster answers at '{address}' ({_first_line(error)}): start one with `ray start --head`, or "
            "leave the address out and one is started here."
        ) from error
    return False


def _require_reachable(address: str) -> None:
    """Raise an `OSError` at once if no server of Ray's kind is there: Ray itself tries for minutes."""
    host, _, port = _resolved(address).rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return
    with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() not in ("0", "false"):
            return
        connection.sendall(HTTP2_GREETING)
        answer = connection.recv(9)
        if len(answer) < 4 or answer[3] != HTTP2_SETTINGS:
            raise ConnectionError("something else answers there")


def _resolved(address: str) -> str:
    """What "auto" means: an address that Ray remembers may be that of a cluster that is gone."""
    if address != "auto":
        return address
    try:
        from ray._private.services import canonicalize_bootstrap_address_or_die
    except ImportError:
        return address
    return str(canonicalize_bootstrap_address_or_die(address))


def _portable_settings(model: Model | None, on_gpu: bool) -> tuple[ModelSettings, Fingerprint] | None:
    """How to load the same model in another process."""
    if model is None:
        return None
    settings = model.settings
    data = None if settings.data is None else os.path.abspath(settings.data)
    device = "cuda" if on_gpu and (settings.device or "").startswith("cuda") else settings.device
    return replace(settings, name=absolute_name(settings.name), data=data, device=device), model.fingerprint


def _died(number: int | None, error: BaseException) -> KnnSeqError:
    reason = _first_line(error)
    if number is None:
        return KnnSeqError(
            f"Workers cannot start on the Ray cluster ({reason}): check that knn-seq is installed on every node for "
            "the same Python."
        )
    return KnnSeqError(
        f"{ATTEMPTS} workers died of the same piece of work ({reason}): check the memory of the nodes, and run the "
        "same command again to go on."
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")

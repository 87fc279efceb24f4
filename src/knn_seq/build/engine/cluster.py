"""A Ray cluster: connecting to one or starting one on this machine, and dividing it among workers."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from knn_seq.errors import InvalidSetting, KnnSeqError, MissingLibrary

CONNECT_SECONDS = 10.0
OBJECT_STORE_BYTES = 100 << 20  # of a Ray that is started here: nothing large goes through it
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # Ray speaks gRPC
HTTP2_SETTINGS = 4  # the kind of frame that a server answers with


class Allocation(NamedTuple):
    """How many workers a cluster gets, and the CPUs and GPUs of each."""

    workers: int
    cpus: int
    gpus: float


def import_ray() -> Any:
    """The library Ray."""
    try:
        import ray
    except ImportError as error:
        raise MissingLibrary("The engine 'ray' needs Ray: install it with `pip install knn-seq[ray]`.") from error
    return ray


def connect(ray: Any, address: str | None, workers: int | None) -> bool:
    """Connect to the cluster at an address, or start one on this machine; returns whether it was started.

    Args:
        ray: The library.
        address: As Ray writes it; None or "local": start one.
        workers: That the one started here must have a CPU each for.
    """
    silent = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None or address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # else anything else on the machine comes first
        cpus = max(os.cpu_count() or 1, workers or 1)
        ray.init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **silent)
        return True
    try:
        _require_ray_at(address)
        ray.init(address, **silent)
    except (OSError, ValueError, RuntimeError) as error:
        raise KnnSeqError(
            f"No Ray cluster answers at '{address}' ({first_line(error)}): start one with `ray start --head`, or "
            "leave the address out and one is started here."
        ) from error
    return False


def allocate_workers(
    nodes: Sequence[Mapping[str, float]], workers: int | None, gpus_per_worker: float | None, on_cpu: bool = False
) -> Allocation:
    """Divide a cluster among workers.

    Args:
        nodes: The resources of each node, "CPU" and "GPU".
        workers: What the user wants; None: one a GPU, or without GPUs one a node.
        gpus_per_worker: What the user wants; None: one, if there are any.
        on_cpu: The user wants no GPU.
    """
    any_gpus = any(node.get("GPU", 0) for node in nodes) and not on_cpu
    gpus = gpus_per_worker if gpus_per_worker is not None else float(any_gpus)
    capacity = _capacity(nodes, 1, gpus)
    wanted = workers or (capacity if gpus else sum(node.get("CPU", 0) >= 1 for node in nodes))
    if not wanted or capacity < wanted:
        each = f" with {gpus:g} GPUs each" if gpus else ""
        raise InvalidSetting(
            f"The Ray cluster can run {capacity} workers{each}, not {wanted or 1}: choose --workers or "
            "--gpus-per-worker to fit it."
        )
    most_cpus = int(max(node.get("CPU", 0) for node in nodes))
    cpus = next(cpus for cpus in range(most_cpus, 0, -1) if _capacity(nodes, cpus, gpus) >= wanted)
    return Allocation(wanted, cpus, gpus)


def first_line(error: BaseException) -> str:
    """What an error says, short enough to be part of a sentence."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")


def _capacity(nodes: Sequence[Mapping[str, float]], cpus: int, gpus: float) -> int:
    """How many workers with so many CPUs and GPUs each the nodes can run."""
    return sum(int(min(node.get("CPU", 0) // cpus, node.get("GPU", 0) / gpus if gpus else math.inf)) for node in nodes)


def _require_ray_at(address: str) -> None:
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

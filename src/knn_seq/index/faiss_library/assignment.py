"""Which inverted list a key belongs to, by whatever is fastest on the machine at hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from knn_seq.quantize import nearest_centroids

TRIAL = 2048  # keys that each way assigns in a round of the race
ROUNDS = 3
CLEARLY = 0.7  # of faiss's time: a way through torch has to be worth its detour


def device_for(name: str | None) -> torch.device:
    """The device of a name; None: CUDA if there is, else the CPU."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def product_dtype(device: torch.device, centroids: Tensor, quantizer: Any) -> torch.dtype | None:
    """In what torch should assign keys to lists; None: the quantizer of faiss is faster.

    An accelerator always takes it, in half precision.  On a CPU faiss and torch race for some milliseconds: their
    libraries know different CPUs, and some of those compute in bfloat16.

    Args:
        device: Where torch computes.
        centroids: (lists, dimension), on the CPU.
        quantizer: Holds the same centroids.
    """
    if device.type != "cpu":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    generator = torch.Generator().manual_seed(0)
    keys = centroids[torch.randint(len(centroids), (TRIAL,), generator=generator)]
    keys = keys + centroids.std() * torch.randn(keys.shape, generator=generator)
    limit = CLEARLY * _seconds(lambda: quantizer.search(keys.numpy(), 1))
    times = {
        kind: _seconds(lambda: nearest_centroids(keys, centroids, dtype=kind))  # noqa: B023
        for kind in (torch.float32, torch.bfloat16)
    }
    fastest = min(times, key=lambda kind: times[kind])
    return fastest if times[fastest] < limit else None


def centroids_of(ivf: Any) -> Tensor:
    """The centroids of the lists, (lists, dimension)."""
    return torch.from_numpy(ivf.quantizer.reconstruct_n(0, ivf.nlist))


def _seconds(work: Callable[[], object]) -> float:
    """The shortest of a few times: what the others took longer is somebody else's work."""
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)

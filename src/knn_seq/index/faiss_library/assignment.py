"""Which inverted list a key belongs to, by whatever is fastest on the machine at hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from knn_seq.index.faiss_library import faiss
from knn_seq.quantize import nearest_centroids
from knn_seq.runtime.environment import cpu_flags

T = TypeVar("T")

TRIAL_KEYS = 1024  # that each method assigns when their times are compared
TRIAL_ROUNDS = 3
# Multiplications from which a trial pays.  Below, faiss does it all, and the same keys always give the same index.
TRIAL_WORK = 1_000_000_000
CLEARLY_FASTER = 0.7  # of faiss's time: torch has to be worth the copies


def device_for(name: str | None) -> torch.device:
    """The device of a name; None: CUDA if there is, else the CPU."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def product_dtypes(device: torch.device) -> tuple[torch.dtype, ...]:
    """In what torch may compare keys with centroids on a device: what is likely to be fastest there."""
    if device.type == "cuda":
        return (torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32,)
    if device.type == "cpu" and {"amx_bf16", "avx512_bf16"} & cpu_flags():
        return torch.float32, torch.bfloat16
    return (torch.float32,)


def product_dtype(device: torch.device, points: int, lists: int, dimension: int) -> torch.dtype | None:
    """In what torch should compare so many points with the centroids of so many lists; None: faiss is faster.

    An accelerator always takes it.  On a CPU both are timed for some milliseconds: their libraries know different CPUs.
    """
    dtypes = product_dtypes(device)
    if device.type != "cpu":
        return dtypes[0]
    if points * lists * dimension < TRIAL_WORK:
        return None
    generator = torch.Generator().manual_seed(0)
    centroids = torch.randn(lists, dimension, generator=generator)
    keys = torch.randn(TRIAL_KEYS, dimension, generator=generator)
    flat = faiss.IndexFlatL2(dimension)
    flat.add(centroids.numpy())
    methods: dict[torch.dtype | None, Callable[[], object]] = {None: lambda: flat.search(keys.numpy(), 1)}
    methods |= {dtype: partial(nearest_centroids, keys, centroids, dtype=dtype) for dtype in dtypes}
    return fastest(methods)


def fastest(methods: Mapping[T, Callable[[], object]]) -> T:
    """The name of the method that takes the least time; the first one unless another is clearly faster."""
    (best, default), *others = methods.items()
    limit = CLEARLY_FASTER * _seconds(default)
    for name, method in others:
        seconds = _seconds(method)
        if seconds < limit:
            best, limit = name, seconds
    return best


def centroids_of(ivf: Any) -> Tensor:
    """The centroids of the lists, (lists, dimension)."""
    return torch.from_numpy(ivf.quantizer.reconstruct_n(0, ivf.nlist))


def _seconds(work: Callable[[], object]) -> float:
    """The shortest of a few times: what the others took longer is somebody else's work."""
    work()
    times = []
    for _ in range(TRIAL_ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)

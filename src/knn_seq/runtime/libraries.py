"""Whether the libraries themselves fit into memory."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from knn_seq.runtime.memory import MemoryNeed, require_memory

# Addresses that faiss 1.15 takes when it is imported, measured with one thread and with two: with more, at least these.
FAISS_BYTES, FAISS_THREAD_BYTES, FAISS_THREADS = 80 << 20, 128 << 20, 2
TRANSFORMERS_BYTES = 200 << 20  # of 241 MB of addresses with one thread, for a small network
LOADED_AT_ONCE = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_hip.so", "libtorch_python.so")


def require_memory_for_libraries() -> None:
    """Raise a `NotEnoughMemory` if torch cannot be imported here: without room for it, it ends the process."""
    if "torch" in sys.modules:
        return
    require_memory(MemoryNeed(0, _torch_bytes()), "PyTorch alone")


def require_memory_for_faiss() -> None:
    """Raise a `NotEnoughMemory` if faiss cannot be imported here: its BLAS asks for memory until it gets some."""
    if "faiss" not in sys.modules:
        given = os.environ.get("OMP_NUM_THREADS", "")
        threads = min(int(given) if given.isdigit() else os.cpu_count() or 1, FAISS_THREADS)
        require_memory(MemoryNeed(0, FAISS_BYTES + threads * FAISS_THREAD_BYTES), "The library faiss alone")


def require_memory_for_transformers() -> None:
    """Raise a `NotEnoughMemory` if Transformers cannot be imported here: it loads SciPy, whose BLAS asks as faiss's."""
    if "scipy.linalg" not in sys.modules and find_spec("scipy") is not None:
        require_memory(MemoryNeed(0, TRANSFORMERS_BYTES), "The library Transformers alone")


def _torch_bytes() -> int:
    spec = find_spec("torch")
    folders = [Path(place) / "lib" for place in (spec.submodule_search_locations or [])] if spec else []
    files = (folder / name for folder in folders for name in LOADED_AT_ONCE)
    return sum(file.stat().st_size for file in files if file.exists())

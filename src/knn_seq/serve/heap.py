"""Memory of threads."""

from __future__ import annotations

import ctypes
import platform

ARENAS = -8  # M_ARENA_MAX of glibc's mallopt


def share_heap() -> None:
    """Let threads that are started from now on allocate where the main thread does.

    glibc gives each thread a heap of its own, and returns the memory of a large tensor to the system as soon as it is
    freed: a thread that decodes would ask for the same pages again in every step.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(ARENAS, 1)

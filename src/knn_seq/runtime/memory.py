"""How much memory there is, and whether it is enough."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from knn_seq.errors import KnnSeqError, NotEnoughMemory
from knn_seq.runtime.sizes import format_bytes

SPARE = 64 << 20  # bytes that the process may have from the system already, and not use
# What libraries write into errors that have no class of their own when memory runs out.
SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "failed to allocate",
    "unable to allocate",
    "out of memory",
    "bad_alloc",
    "failed to map segment from shared object",
    "can't start new thread",
    "thread creation failed",
)


class MemoryNeed(NamedTuple):
    """What something takes once it is loaded, in bytes."""

    held: int  # in memory
    mapped: int = 0  # in files that are mapped: they take addresses, but no memory that could not be had back


class MemoryBound(NamedTuple):
    """What keeps a process from taking more memory."""

    name: str
    free: int  # bytes below it
    what_to_do: str
    of_addresses: bool = False  # mapped files count
    swappable: bool = True  # more can be had by swapping


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may take without pushing others out; all memory where no limit is known.

    Args:
        root: Where `proc` and `sys` are.
    """
    bounds = [bound.free for bound in memory_bounds(root)]
    return min(bounds) if bounds else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_memory(need: MemoryNeed, purpose: str, root: Path = Path("/")) -> None:
    """Raise a `NotEnoughMemory` if something cannot be loaded here.

    Args:
        need: What it takes at the very least.
        purpose: What it is, to be read at the beginning of a sentence.
        root: Where `proc` and `sys` are.
    """
    swap = _meminfo(root).get("SwapFree", 0)
    for bound in memory_bounds(root):
        needed = need.held + (need.mapped if bound.of_addresses else 0)
        free = bound.free + (swap if bound.swappable else 0)
        spare = 0 if bound.swappable else min(need.held, SPARE)
        if needed - spare > free:
            raise NotEnoughMemory(
                f"{purpose} needs at least {format_bytes(needed)} of memory, and {bound.name} leaves "
                f"{format_bytes(free)}: {bound.what_to_do}."
            )


def memory_bounds(root: Path = Path("/")) -> Iterator[MemoryBound]:
    """All that bounds the memory of this process."""
    available = _meminfo(root).get("MemAvailable")
    if available is not None:
        yield MemoryBound("this machine", available, "end other programs, or take a machine with more")
    yield from _control_groups(root)
    yield from process_limits(root)


def process_limits(root: Path = Path("/")) -> Iterator[MemoryBound]:
    """The limits that a shell or a service sets for the process (`ulimit`)."""
    used = _kilobytes(root / "proc/self/status")
    for limit, field, option in ((resource.RLIMIT_AS, "VmSize", "-v"), (resource.RLIMIT_DATA, "VmData", "-d")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY and field in used:
            yield MemoryBound(
                f"`ulimit {option}` ({format_bytes(most)})",
                max(most - used[field], 0),
                f"raise it (`ulimit {option} unlimited`)",
                of_addresses=limit == resource.RLIMIT_AS,
                swappable=False,
            )


def lack_of_memory(error: BaseException) -> KnnSeqError | None:
    """One sentence for an error that was raised, here or somewhere below, because memory ran out; None for others."""
    if isinstance(error, NotEnoughMemory):
        return error
    cause: BaseException | None = error
    while cause is not None and not _is_lack_of_memory(cause):
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    if cause is None:
        return None
    smaller = "take smaller batches (--batch-size, --batch-tokens), a smaller model or a smaller index"
    if "cuda" in str(cause).lower():
        return NotEnoughMemory(f"The memory of the GPU ran out: {smaller}.")
    least = min(memory_bounds(), key=lambda bound: bound.free, default=None)
    if least is None:
        return NotEnoughMemory(f"Memory ran out: {smaller}.")
    return NotEnoughMemory(
        f"Memory ran out, {least.name} leaves {format_bytes(least.free)}: {least.what_to_do}, or {smaller}."
    )


def _is_lack_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, SystemError):  # of an extension that got no memory and forgot to say so
        return any(limit.free < SPARE for limit in process_limits())
    text = str(error).lower()
    return isinstance(error, RuntimeError | OSError | ImportError) and any(sign in text for sign in SIGNS)


def _control_groups(root: Path) -> Iterator[MemoryBound]:
    """The group of the process and all groups above it, of either version of control groups."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        old = bool(controllers)
        top = root / "sys/fs/cgroup" / ("memory" if old else "")
        here = top / group.strip().lstrip("/")
        for folder in (here, *here.parents):
            for limit in _lines(folder / ("memory.limit_in_bytes" if old else "memory.max")):
                if limit.isdigit():
                    name = f"the limit of the container or control group ({format_bytes(int(limit))})"
                    yield MemoryBound(name, max(int(limit) - _used(folder, old), 0), "raise it")
            if folder == top:
                break


def _used(folder: Path, old: bool) -> int:
    """What a control group takes and cannot give back, as it could the pages of files."""
    usage = _lines(folder / ("memory.usage_in_bytes" if old else "memory.current"))
    prefix = "total_" if old else ""
    pages = {f"{prefix}active_file", f"{prefix}inactive_file"}
    rows = (line.split() for line in _lines(folder / "memory.stat"))
    files = sum(int(row[1]) for row in rows if len(row) == 2 and row[0] in pages)
    return max(int(usage[0]) - files, 0) if usage and usage[0].isdigit() else 0


def _meminfo(root: Path) -> dict[str, int]:
    return _kilobytes(root / "proc/meminfo")


def _kilobytes(path: Path) -> dict[str, int]:
    """Bytes by name, of a file with lines such as "VmSize:  900 kB"."""
    rows = (line.replace(":", " ", 1).split() for line in _lines(path))
    return {row[0]: int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []

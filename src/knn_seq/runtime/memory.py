"""How much memory there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may take without pushing others out; all memory where no limit is known.

    Args:
        root: Where `proc` and `sys` are.
    """
    bounds = [*_free(root / "proc/meminfo"), *_limits(root)]
    return min(bounds) if bounds else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free(path: Path) -> Iterator[int]:
    for line in _lines(path):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            yield int(rest.split()[0]) * 1024


def _limits(root: Path) -> Iterator[int]:
    """Of the control group of the process and of all groups above it, of either version of control groups."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        top = root / "sys/fs/cgroup" / mount
        here = top / group.strip().lstrip("/")
        for folder in (here, *here.parents):
            yield from (int(limit) for limit in _lines(folder / name) if limit.isdigit())
            if folder == top:
                break


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []

"""The collector of unreachable objects, which has nothing to find while a command starts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """While inside, nothing is collected.

    Importing torch makes a million objects that stay; to look at all of them time and again takes a sixth of it.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()

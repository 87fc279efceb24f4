"""Where the time of decoding goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Adds up the seconds spent in named parts of some work.

    Args:
        device: Where the work is done.  A GPU works asynchronously: it is waited for, so that each part pays for its
            own work.

    Attributes:
        seconds: Of each part.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._asynchronous = torch.device(device).type != "cpu"

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """The time spent inside counts for that part."""
        start = self._now()
        try:
            yield
        finally:
            self.seconds[part] += self._now() - start

    def _now(self) -> float:
        if self._asynchronous:
            torch.accelerator.synchronize()
        return time.perf_counter()

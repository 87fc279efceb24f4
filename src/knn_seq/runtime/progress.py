"""Progress of long work: a bar on a terminal, a plain line now and then everywhere else."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType

from knn_seq.runtime.wording import count

SECONDS_BETWEEN_LINES = 10.0

log = logging.getLogger(__name__)


class Progress:
    """Counts up to a total and shows rate and time left.

    It is shown where messages of level INFO of the logger `knn_seq` are: the command line shows them, the Python API
    does if the user configures `logging` so.

    Args:
        label: What is being done ("keys").
        total: How many units there are, or None if nobody knows.
        unit: The unit's name in the singular ("token").
        done: How many were done before (a build that resumes).
    """

    def __init__(self, label: str, total: int | None, unit: str, done: int = 0) -> None:
        self.label, self.total, self.unit, self.done = label, total, unit, done
        self._initial = done
        self._start = self._last_line = time.monotonic()
        self._bar = None
        if log.isEnabledFor(logging.INFO) and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                desc=label, total=total, initial=done, unit=f" {unit}s", unit_scale=True, dynamic_ncols=True
            )

    def update(self, count: int) -> None:
        """Say that `count` more units are done."""
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._line()

    def close(self) -> None:
        """Finish the bar, or print the last line."""
        if self._bar is not None:
            self._bar.close()
        else:
            self._line()

    def _line(self) -> None:
        self._last_line = time.monotonic()
        seconds = max(self._last_line - self._start, 1e-9)
        rate = (self.done - self._initial) / seconds
        done = count(self.done, self.unit) if self.total is None else f"{self.done:,} of {count(self.total, self.unit)}"
        text = f"{self.label}: {done}, {_rate(rate)} {self.unit}s/s"
        if self.total is not None and self.done < self.total and rate > 0:
            text += f", {_duration((self.total - self.done) / rate)} left"
        else:
            text += f", {_duration(seconds)}"
        log.info("%s", text)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self._bar is not None:
            self.close()


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _duration(seconds: float) -> str:
    rounded = round(seconds)
    hours, minutes = rounded // 3600, rounded % 3600 // 60
    return f"{hours}:{minutes:02}:{rounded % 60:02}" if hours else f"{minutes}:{rounded % 60:02}"

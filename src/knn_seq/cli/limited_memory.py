"""Commands where the shell limits memory: libraries end a process that gets no more, without a word or with a crash."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from knn_seq.errors import NotEnoughMemory
from knn_seq.runtime.memory import process_limits

PASSED_ON = ("SIGTERM", "SIGHUP")
SET_PARENT_DEATH_SIGNAL = 1  # of Linux's prctl


def run_within_limits(command: Callable[[], int]) -> int:
    """Run a command; where memory is limited, in a process of its own, so that its end can be told.

    Args:
        command: Returns the exit code.
    """
    limits = list(process_limits())
    alone = threading.active_count() == 1 and not {"torch", "numpy"} & sys.modules.keys()  # others may hold locks
    if not limits or not alone:
        return command()
    done, ended = os.pipe()
    child = os.fork()
    if not child:
        os.close(done)
        _end_with_parent()
        try:
            return command()
        finally:  # an exception of Python is an end that tells its reason, too
            os.write(ended, b".")
    os.close(ended)
    status = _wait(child)
    with open(done, "rb") as told:
        if told.read() or not status:
            return os.waitstatus_to_exitcode(status)
    least = min(limits, key=lambda limit: limit.free)
    raise NotEnoughMemory(
        f"The command {_how(status)}, as libraries do that get no more memory, and {least.name} bounds it: "
        f"{least.what_to_do}, or take fewer threads (OMP_NUM_THREADS=1) and smaller batches."
    )


def _end_with_parent() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _wait(child: int) -> int:
    """The status of a child that has ended; it is the one that signals interrupt."""

    def pass_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for name in PASSED_ON:
        if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), pass_on)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    try:
        return os.waitpid(child, 0)[1]
    finally:
        signal.signal(signal.SIGINT, before)


def _how(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return "gave up"
    return f"was ended by the signal {signal.Signals(os.WTERMSIG(status)).name}"

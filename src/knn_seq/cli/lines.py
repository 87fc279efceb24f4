"""The lines of a command's input, as they come."""

from __future__ import annotations

import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import TextIO

from knn_seq.errors import InvalidSetting

LINES_AT_ONCE = 1024  # sorted by length and batched together
PROMPT = "> "


def batches_of_lines(source: TextIO, max_wait: float) -> Iterator[list[str]]:
    """Batches of lines without their ends; a file is read in large ones, a program or a person is not kept waiting.

    Args:
        source: The input.
        max_wait: Seconds that the first line of a batch waits for others, if the input is not a file.
    """
    lines = _from_file(source) if _is_file(source) else _as_they_come(source, max_wait)
    try:
        for batch in lines:
            yield [line.rstrip("\r\n") for line in batch]
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"The input is not UTF-8: {error}.") from error


def _is_file(source: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except (OSError, ValueError):  # it is no file of the system, but a buffer of this process
        return True


def _from_file(source: TextIO) -> Iterator[list[str]]:
    while batch := list(islice(source, LINES_AT_ONCE)):
        yield batch


def _as_they_come(source: TextIO, max_wait: float) -> Iterator[list[str]]:
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=LINES_AT_ONCE)

    def read() -> None:
        try:
            for line in source:
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, name="input", daemon=True).start()
    asking = source.isatty() and sys.stderr.isatty()
    ended = False
    while not ended:
        if asking:
            print(PROMPT, end="", file=sys.stderr, flush=True)
        batch: list[str] = []
        deadline = None
        while not ended and len(batch) < LINES_AT_ONCE:
            try:
                line = arrived.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0))
            except queue.Empty:
                break
            if isinstance(line, BaseException):
                raise line
            if line is None:
                ended = True
            else:
                batch.append(line)
                deadline = deadline or time.monotonic() + max_wait
        if batch:
            yield batch

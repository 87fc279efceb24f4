from __future__ import annotations

import fcntl
import logging
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from knn_seq.runtime import progress
from knn_seq.runtime.progress import Progress

LOGGER = "knn_seq.runtime.progress"


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves on."""
    seconds = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds[0])
    return lambda passed: seconds.__setitem__(0, seconds[0] + passed)


def messages(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_a_line_now_and_then_with_rate_and_time_left(caplog, clock):
    with caplog.at_level(logging.INFO, LOGGER), Progress("keys", 4000, "tokens", done=1000) as shown:
        clock(4)
        shown.update(500)  # too soon for a line
        clock(6)
        shown.update(500)
        clock(10)
        shown.update(2000)
        assert shown.done == 4000
    assert messages(caplog) == [
        "keys: 2,000 of 4,000 tokens, 100 tokens/s, 0:20 left",
        "keys: 4,000 of 4,000 tokens, 150 tokens/s, 0:20",
        "keys: 4,000 of 4,000 tokens, 150 tokens/s, 0:20",
    ]


def test_an_unknown_total(caplog, clock):
    with caplog.at_level(logging.INFO, LOGGER), Progress("text", None, "lines") as shown:
        clock(7200)
        shown.update(3600)
    assert messages(caplog)[-1] == "text: 3,600 lines, 0.5 lines/s, 2:00:00"


def test_what_failed_has_no_last_line(caplog):
    with caplog.at_level(logging.INFO, LOGGER), pytest.raises(ValueError, match="mine"), Progress("keys", 4, "tokens"):
        raise ValueError("mine")
    assert messages(caplog) == []


ON_A_TERMINAL = """
import logging, sys
from knn_seq.runtime.progress import Progress
logging.getLogger("knn_seq").setLevel(int(sys.argv[1]))
with Progress("keys", 40, "tokens") as progress:
    progress.update(40)
"""


@pytest.mark.parametrize(("level", "shown"), [(logging.INFO, True), (logging.WARNING, False)])
def test_a_bar_on_a_terminal(level, shown):
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    subprocess.run([sys.executable, "-c", ON_A_TERMINAL, str(level)], stderr=end, check=True)
    os.close(end)
    try:
        output = os.read(terminal, 10_000).decode()
    except OSError:  # nothing was written, and nobody can write any more
        output = ""
    os.close(terminal)
    assert ("keys: 100%" in output) is shown

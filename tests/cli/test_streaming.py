"""knn-seq translate as another program talks to it, and as it is ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest


@pytest.fixture
def started(number_store):
    """The command, started with pipes; it is killed in the end."""
    processes = []

    def start(*options):
        words = [sys.executable, "-m", "knn_seq.cli.main", "translate", str(number_store.path), "-q", *options]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # A shell lets what runs in the background ignore Ctrl-C, and so would this.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        processes.append(subprocess.Popen(words, text=True, bufsize=1, **pipes))
        signal.signal(signal.SIGINT, before)
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def test_a_line_is_answered_before_the_next_is_written(started):
    process = started("--max-length", "6", "--beam-size", "1")
    for line in ("5 6 7", "", "8 9"):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer.endswith("\n")
        assert bool(answer.strip()) == bool(line)
    process.stdin.close()
    assert process.stdout.read() == ""
    assert process.wait(30) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_with_a_sentence(started, number, code):
    process = started()
    process.stdin.write("5 6\n")
    process.stdin.flush()
    assert process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(number)
    assert process.wait(30) == code
    assert process.stderr.read().strip() == "knn-seq: interrupted; what was finished is kept."

from __future__ import annotations

import resource
import signal
import subprocess
import sys

import pytest

from knn_seq.cli.limited_memory import run_within_limits

MB = 1_000_000
TRANSLATE = "import sys; from knn_seq.cli.main import main; sys.exit(main(sys.argv[1:]))"


def limited(code: str, most: int, *arguments: object, limit: int = resource.RLIMIT_AS) -> subprocess.Popen[str]:
    """A Python process that runs this code and may take so many bytes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
    )


def within_limits(body: str) -> str:
    """Code that runs a command, whose lines these are, as `knn-seq` runs its own."""
    return (
        "import os, signal, sys, time\n"
        "from knn_seq.cli import limited_memory\n"
        "from knn_seq.errors import NotEnoughMemory\n"
        f"def command():\n    {body}\n"
        "try:\n    sys.exit(limited_memory.run_within_limits(command))\n"
        "except NotEnoughMemory as error:\n    sys.exit(f'told: {error}')\n"
    )


@pytest.mark.parametrize(
    ("limit", "megabytes"), [("RLIMIT_AS", 550), ("RLIMIT_AS", 900), ("RLIMIT_AS", 8000), ("RLIMIT_DATA", 300)]
)
def test_too_little_memory_is_one_sentence(number_store, limit, megabytes):
    command = ("translate", number_store.path, "--max-length", 9, "-q")
    process = limited(TRANSLATE, megabytes * MB, *command, limit=getattr(resource, limit))
    out, err = process.communicate("5 6 7\n")
    assert "Traceback" not in err
    if megabytes == 8000:
        assert (process.returncode, len(out.splitlines()), err) == (0, 1, "")
    else:
        assert process.returncode == 2
        assert err.splitlines()[-1].startswith("knn-seq: ")
        assert ("`ulimit -v`" if limit == "RLIMIT_AS" else "`ulimit -d`") in err


def test_what_libraries_need_is_compared_before_they_are_loaded(number_store):
    process = limited(TRANSLATE, 300 * MB, "translate", number_store.path)
    assert process.communicate()[1].startswith("knn-seq: PyTorch alone needs at least ")


def test_commands_without_libraries_need_no_memory():
    assert limited(TRANSLATE, 300 * MB, "completion", "bash").wait() == 0
    assert limited(TRANSLATE, 300 * MB).wait() == 0


def test_a_command_that_crashes_is_told_of():
    process = limited(within_limits("os.abort()"), 100_000 * MB)
    assert "told: The command was ended by the signal SIGABRT" in process.communicate()[1]
    process = limited(within_limits("os._exit(1)"), 100_000 * MB)  # as OpenMP ends it
    assert "told: The command gave up" in process.communicate()[1]


def test_a_command_that_ends_keeps_its_exit_code():
    assert limited(within_limits("return 7"), 100_000 * MB).wait() == 7
    assert limited(within_limits("os._exit(0)"), 100_000 * MB).wait() == 0  # as the completion of a shell ends
    process = limited(within_limits("raise ValueError('mine')"), 100_000 * MB)
    _, err = process.communicate()
    assert (process.returncode, "told:" in err, err.count("ValueError: mine")) == (1, False, 1)


def test_signals_reach_the_command():
    body = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); print('here', flush=True); time.sleep(60)"
    process = limited(within_limits(body), 100_000 * MB)
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143


def test_without_limits_a_command_runs_here():
    ran = []
    assert run_within_limits(lambda: ran.append(1) or 3) == 3
    assert ran == [1]

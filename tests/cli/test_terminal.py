"""Commands as a person at a terminal sees them."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from knn_seq.cli.colours import BOLD, coloured, highlight_labels
from knn_seq.explain.text import INDENT, labelled

COMMAND = [sys.executable, "-m", "knn_seq.cli.main"]
ESCAPE = "\x1b["
PATIENCE = 600.0  # seconds in which a command says something, on a machine that does much else


class Screen:
    """A terminal with a command in it; what is shown on it, and what is typed."""

    def __init__(self, *arguments, typed=True, **environment):
        self.terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=end if typed else subprocess.DEVNULL,
            stdout=end,
            stderr=end,
            env=inherited | {"TERM": "xterm"} | environment,
        )
        os.close(end)
        self.shown = ""

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, text, seconds=PATIENCE):
        until = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < until, self.shown
            if not self._read():
                break
        assert text in self.shown

    def wait(self):
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def _read(self):
        if not select.select([self.terminal], [], [], PATIENCE)[0]:
            return False
        try:
            text = os.read(self.terminal, 4096).decode()
        except OSError:  # the command has ended
            return False
        self.shown += text.replace("\r\n", "\n")
        return bool(text)

    def close(self):
        os.close(self.terminal)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def screen():
    opened = []

    def open_screen(*arguments, **options):
        opened.append(Screen(*arguments, **options))
        return opened[-1]

    yield open_screen
    for each in opened:
        each.close()


def test_lines_are_asked_for_and_answered_without_a_bar_between(screen, number_store):
    shown = screen("translate", number_store.path, "--max-length", 4, "--beam-size", 1, "--weight", 0)
    shown.wait_for("> ")
    shown.type("5 6 7\n")
    shown.wait_for("\n> ")
    shown.type("\x04")
    assert shown.wait() == 0
    typed, answer, prompt, rest = shown.shown.split("\n")
    assert typed == "> 5 6 7"
    assert answer
    assert prompt.replace("^D", "").replace("\b", "") == "> "
    assert rest == ""


def test_no_bar_runs_through_translations_that_appear(screen, number_store, tmp_path):
    (tmp_path / "in.txt").write_text("5 6\n7 8\n")
    options = ("--input", tmp_path / "in.txt", "--max-length", 4)
    shown = screen("translate", number_store.path, *options, typed=False)
    assert shown.wait() == 0
    assert shown.shown.count("\n") == 2
    assert "%" not in shown.shown
    shown = screen("translate", number_store.path, *options, "--output", tmp_path / "out.txt", typed=False)
    assert shown.wait() == 0
    assert "100%" in shown.shown


def test_colours_on_a_terminal_unless_somebody_said_no(screen, number_store, tmp_path):
    for arguments in (("info", number_store.path), ("info", tmp_path)):
        shown = screen(*arguments)
        shown.wait()
        assert ESCAPE in shown.shown
        for no in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            plain = screen(*arguments, **no)
            plain.wait()
            assert ESCAPE not in plain.shown
            assert plain.shown.strip()


def test_no_colours_in_a_file(knn_seq, number_store, tmp_path):
    assert ESCAPE not in knn_seq("info", number_store.path)[1]
    assert knn_seq("info", tmp_path)[2].startswith("knn-seq: ")
    assert coloured("text", BOLD, io.StringIO()) == "text"


def test_the_labels_of_an_explanation_are_highlighted(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = "\n".join([labelled("source", "word " * 40), labelled("", "neighbour"), ""])
    lines = highlight_labels(text, INDENT, Terminal()).split("\n")
    assert lines[0].startswith(f"{ESCAPE}1m     source  {ESCAPE}0mword")
    assert not any(ESCAPE in line for line in lines[1:])
    assert highlight_labels(text, INDENT, io.StringIO()) == text


def test_a_terminal_that_goes_away_ends_the_command(number_store):
    terminal, end = pty.openpty()
    words = [*COMMAND, "translate", str(number_store.path), "-q"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=end, text=True)
    os.close(end)
    process.stdin.write("5 6\n")
    process.stdin.flush()
    assert process.stdout.readline()
    os.close(terminal)  # what is written to it from now on is an error
    process.send_signal(signal.SIGHUP)
    try:
        assert process.wait(30) == 129
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()

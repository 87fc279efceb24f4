"""The Tab key."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from knn_seq.cli.main import COMMANDS


@pytest.fixture
def offered(tmp_path):
    """What a shell is told could stand at the end of a line."""

    def complete(line):
        found = tmp_path / "completions"
        asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
        environment = os.environ | asked | {"_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(found)}
        command = [sys.executable, "-m", "knn_seq.cli.main"]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True)
        return [each.strip() for each in found.read_text().splitlines()]

    return complete


def test_commands_options_and_their_values(offered, tmp_path):
    (tmp_path / "store").mkdir()
    assert set(COMMANDS) <= set(offered("knn-seq "))
    assert offered("knn-seq trans") == ["translate"]
    assert offered("knn-seq translate --explain-") == ["--explain-neighbours"]
    assert offered("knn-seq translate store/ --explain ") == ["text", "json"]
    assert offered("knn-seq info st") == ["store/"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_what_it_evaluates(knn_seq, shell):
    code, out, err = knn_seq("completion", shell)
    assert (code, err) == (0, "")
    assert "knn-seq" in out
    assert "_ARGCOMPLETE" in out


def test_bash_understands_it(knn_seq):
    code = knn_seq("completion", "bash")[1] + "\ncomplete -p knn-seq\n"
    shown = subprocess.run(["bash", "--norc"], input=code, capture_output=True, text=True, check=True)
    assert "_python_argcomplete" in shown.stdout

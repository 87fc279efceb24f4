"""The commands as a user runs them, each a process of its own."""

from __future__ import annotations

import math
import subprocess
import sys

from fairseq_commands import generate, read_output, with_neighbours

SETTINGS = {"k": 8, "temperature": 20.0, "weight": 0.5}


def run(*command, text=None):
    process = subprocess.run(
        [sys.executable, "-m", *map(str, command)], input=text, capture_output=True, text=True, timeout=300
    )
    return process


def test_interactive_is_generate_line_by_line(toy, build_store):
    folder = run("knn_seq.cli.main", "fairseq-dir").stdout.strip()
    options = with_neighbours(build_store(), **SETTINGS)
    options[options.index("--user-dir") + 1] = folder
    lines = "".join(" ".join(sentence) + "\n" for sentence in toy.test)
    command = ("fairseq_cli.interactive", toy.data, "--path", toy.models[0], "--cpu", "--beam", 5, *options)
    process = run(*command, "--buffer-size", 8, "--batch-size", 4, text=lines)
    assert process.returncode == 0, process.stderr
    found, expected = read_output(process.stdout), generate(toy.data, toy.models[0], *options)
    assert found.keys() == expected.keys()
    for number, nbest in found.items():
        assert nbest[0].words == expected[number][0].words
        assert math.isclose(nbest[0].score, expected[number][0].score, abs_tol=1e-5)


def test_a_mistake_ends_the_process_with_code_2(toy, tmp_path):
    options = with_neighbours(tmp_path / "nowhere")
    process = run("fairseq_cli.generate", toy.data, "--path", toy.models[0], "--cpu", *options)
    assert process.returncode == 2
    assert [line for line in process.stderr.splitlines() if line.startswith("knn-seq: ")]
    assert "Traceback" not in process.stderr

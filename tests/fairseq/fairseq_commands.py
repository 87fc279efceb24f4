"""fairseq's commands, called from tests."""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from knn_seq.fairseq import plugin_folder
from knn_seq.fairseq.generate.checkpoints import allow_checkpoints


@dataclass
class Hypothesis:
    """A line of fairseq-generate's output, its scores in base e."""

    words: str
    score: float
    positions: list[float]  # printed with four digits


def fairseq(command: str, *arguments: object) -> str:
    """Run fairseq-COMMAND in this process; returns what it printed."""
    module = importlib.import_module(f"fairseq_cli.{command}")
    output = io.StringIO()
    argv = [f"fairseq-{command}", *map(str, arguments)]
    with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(output):
        module.cli_main()
    return output.getvalue()


def train(data: Path, folder: Path, seed: int, epochs: int, *options: object) -> Path:
    """Train a tiny model; returns its checkpoint."""
    fairseq(
        *("train", data, "--arch", "transformer_tiny", "--decoder-ffn-embed-dim", 96, "--cpu", *options),
        *("--seed", seed, "--save-dir", folder),
        *("--optimizer", "adam", "--lr", 0.004, "--lr-scheduler", "fixed", "--clip-norm", 1.0, "--dropout", 0.0),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1, "--max-tokens", 512),
        *("--max-epoch", epochs, "--disable-validation", "--no-epoch-checkpoints", "--num-workers", 0),
        *("--no-progress-bar", "--log-format", "none"),
    )
    return folder / "checkpoint_last.pt"


def load_network(path: Path, **overrides):
    """fairseq's own model."""
    from fairseq import checkpoint_utils

    allow_checkpoints()
    return checkpoint_utils.load_model_ensemble([str(path)], overrides)[0][0].eval()


def generate(data: Path, models: object, *arguments: object) -> dict[int, list[Hypothesis]]:
    """fairseq-generate for the test set: the n best of each sentence."""
    allow_checkpoints()  # plain fairseq does not read its own checkpoints with a torch of today
    options = ("--cpu", "--beam", 5, "--nbest", 5, "--required-batch-size-multiple", 1)  # else it drops sentences
    return read_output(fairseq("generate", data, "--path", models, *options, *arguments))


def with_neighbours(store: object, task: str = "translation_knn", **options: object) -> list[object]:
    """The options that put the plug-in to work."""
    chosen: list[object] = ["--user-dir", plugin_folder(), "--task", task, "--knn-datastore", store]
    for name, value in options.items():
        chosen += [f"--knn-{name.replace('_', '-')}", value]
    return chosen


def read_output(text: str) -> dict[int, list[Hypothesis]]:
    """The hypotheses of each sentence in what fairseq-generate or fairseq-interactive printed."""
    found: dict[int, list[Hypothesis]] = {}
    for line in text.splitlines():
        name, *fields = line.split("\t")
        kind, _, number = name.partition("-")
        if kind == "H":
            hypothesis = Hypothesis(fields[1], float(fields[0]) * math.log(2), [])
            found.setdefault(int(number), []).append(hypothesis)
        elif kind == "P":
            found[int(number)][-1].positions = [float(score) * math.log(2) for score in fields[0].split()]
    return found

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from knn_seq.errors import DamagedFile, KnnSeqError, MissingLibrary, NotFound
from knn_seq.metrics import comet_scores
from knn_seq.metrics.base import METRICS, Metric, Score
from knn_seq.metrics.bootstrap import paired_bootstrap

MODEL = "Unbabel/wmt22-comet-da"
PYTHON = "KNN_SEQ_COMET_PYTHON"
VERSION = "from importlib.metadata import version; print(version('unbabel-comet'))"


@METRICS.register("comet")
class Comet(Metric):
    """COMET: a network that reads source, translation and reference; the mean over all sentences.

    COMET needs older libraries than this package, so it lives in an environment of its own and is run there.

    Args:
        model: A checkpoint: a `.ckpt` file, a folder with `checkpoints/model.ckpt`, or a name on the hub.
        python: The Python that has COMET.  None: what the variable KNN_SEQ_COMET_PYTHON says, this one if it can, or
            that of the `comet-score` on the path.
    """

    name = "COMET"

    def __init__(self, model: str = MODEL, python: str | None = None) -> None:
        self.model, self._given = model, python or os.environ.get(PYTHON)

    def require(self) -> None:
        """See `Metric.require`: there must be COMET and the checkpoint."""
        _ = self.version, self._checkpoint

    def scores(
        self, systems: Mapping[str, Sequence[str]], references: Sequence[str], sources: Sequence[str]
    ) -> dict[str, Score]:
        """See `Metric.scores`; all systems are scored in one call, and what several of them wrote only once."""
        signature = f"model:{self.model}|version:{self.version}"
        rows = {name: list(zip(sources, system, references, strict=True)) for name, system in systems.items()}
        distinct = list(dict.fromkeys(row for system in rows.values() for row in system))
        score_of = dict(zip(distinct, self._segment_scores(distinct), strict=True))
        results: dict[str, Score] = {}
        first: list[float] | None = None
        for name, system in rows.items():
            own = [score_of[row] for row in system]
            p_value = None if first is None else paired_bootstrap(first, own)
            results[name] = Score(float(np.mean(own)), signature, p_value)
            first = first or own
        return results

    @cached_property
    def python(self) -> str:
        """The Python that has COMET."""
        found = self._given or (sys.executable if _version(sys.executable) else _python_of_command())
        if found is None:
            raise MissingLibrary(
                "There is no COMET: make an environment for it (python3 -m venv comet; comet/bin/pip install "
                f"unbabel-comet 'pytorch-lightning<2.6' 'setuptools<81') and set {PYTHON}=comet/bin/python."
            )
        return found

    @cached_property
    def version(self) -> str:
        """COMET's version."""
        version = _version(self.python)
        if version is None:
            raise MissingLibrary(f"There is no COMET in {self.python}: give a Python that has it in {PYTHON}.")
        return version

    @cached_property
    def _checkpoint(self) -> str:
        """The checkpoint's file, or its name on the hub."""
        path = Path(self.model)
        file = path / "checkpoints" / "model.ckpt" if path.is_dir() else path
        if file.is_file():
            if not (file.absolute().parent.parent / "hparams.yaml").is_file():
                raise DamagedFile(
                    f"{file} is no COMET checkpoint: there is no hparams.yaml in the folder above its own."
                )
            return str(file.absolute())
        if path.is_dir() or path.suffix == ".ckpt" or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", self.model):
            raise NotFound(f"There is no COMET checkpoint {file}: give a .ckpt file, its folder or a name on the hub.")
        return self.model

    def _segment_scores(self, rows: Sequence[tuple[str, str, str]]) -> list[float]:
        segments = [
            {"src": str(source), "mt": str(output), "ref": str(reference)} for source, output, reference in rows
        ]
        if not segments:
            return []
        lines = "".join(json.dumps(line) + "\n" for line in ({"model": self._checkpoint}, *segments))
        done = _run(self.python, comet_scores.__file__, stdin=lines)
        try:
            result: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            result = {"error": f"it ended with code {done.returncode}: {done.stderr.strip()[-500:]}"}
        if "error" in result:
            reason = " ".join(result["error"].split())[:500]
            raise KnnSeqError(f"COMET cannot score with {self.model} in {self.python}: {reason}")
        scores: list[float] = result["scores"]
        return scores


def _version(python: str) -> str | None:
    """The version of COMET in a Python; None if it has none."""
    try:
        done = _run(python, "-c", VERSION)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _run(python: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    # These variables lead this Python to its libraries, and must not lead the other one there.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        [python, *arguments], input=stdin, capture_output=True, encoding="utf-8", errors="replace", env=environment
    )


def _python_of_command() -> str | None:
    """The Python that the command `comet-score` runs with, from its first lines; None if there is no such command."""
    command = shutil.which("comet-score")
    if command is None:
        return None
    script = Path(command).resolve()
    with open(script, encoding="utf-8", errors="replace") as file:
        head = file.read(1000)
    # Where the path is too long for the first line, or has a space, pip lets the shell start it.
    match = re.match(r"#!\s*(\S*python\S*)", head) or re.search(r"^'''exec' \"?(.*?)\"? \"\$0\"", head, re.MULTILINE)
    beside = script.parent / ("python.exe" if os.name == "nt" else "python")
    return match[1] if match else str(beside)

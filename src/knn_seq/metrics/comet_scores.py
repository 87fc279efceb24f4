"""COMET's own scores of sentences.  This file is run by the Python that has COMET, and needs nothing else."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

BATCH_SIZE = 16


def comet_scores(model: str, segments: list[dict[str, str]]) -> list[float]:
    """The score of each segment.

    Args:
        model: A checkpoint's path, or a name for COMET to download.
        segments: Source, translation and reference of each: {"src": ..., "mt": ..., "ref": ...}.
    """
    comet: Any = import_module("comet")
    torch: Any = import_module("torch")
    loaded = comet.load_from_checkpoint(model if os.path.isfile(model) else comet.download_model(model))
    gpus = int(torch.cuda.is_available())
    # Worker processes would cost more time than they save: a segment is three short strings to tokenize.
    predicted = loaded.predict(segments, batch_size=BATCH_SIZE, gpus=gpus, progress_bar=False, num_workers=0)
    return [float(score) for score in predicted["scores"]]


def main() -> None:
    """Read {"model": ...} and then segments as JSON lines; write {"scores": [...]} or {"error": ...}."""
    answer = os.dup(1)
    os.dup2(2, 1)  # the libraries print to standard output
    first, *segments = (json.loads(line) for line in sys.stdin.buffer)
    try:
        result: dict[str, Any] = {"scores": comet_scores(first["model"], segments)}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    del sys.path[0]  # this folder, in which another `comet` is
    main()

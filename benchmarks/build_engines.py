"""Ray with one worker over the local engine: what a cluster costs before it brings anything.

Both build a datastore of the same text, again in every round: the demo's verses with the Firefox model, as many as make
a build of some minutes.  What is compared is the complete build, with Ray's start and end, and the two steps that
workers do, keys and index.

    python benchmarks/build_engines.py --folder results/speed
    python benchmarks/build_engines.py --folder results/speed --sentences 10000
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from figures import write_figures
from rounds import Options, Ratio, Row, command_line, options_of, table

import knn_seq.build.pipeline as pipeline
from knn_seq.build import build_datastore
from knn_seq.corpus import open_corpus
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.demo.run import write_tsv
from knn_seq.models import load_model
from knn_seq.settings import BuildSettings, ModelSettings
from knn_seq.storage.atomic import write_json

MODEL = "firefox:pt-en"
SENTENCES, QUICK_SENTENCES = 24_000, 600  # of the demo's text; 24,000 have some 900,000 tokens
ROUNDS = 2  # of minutes each
GOAL = 1.1  # times the local engine's seconds
ENGINES: dict[str, dict[str, Any]] = {"local": {"engine": "local"}, "ray": {"engine": "ray", "workers": 1}}
STEPS = ("store_text", "store_keys", "store_index", "examples_for", "train")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--sentences", type=int, default=SENTENCES, help=f"of the text (default: {SENTENCES:,})")
    arguments = parser.parse_args()
    if arguments.rounds is None and not arguments.quick:
        arguments.rounds = ROUNDS
    rows = measure(arguments.folder, options_of(arguments), arguments.sentences)
    write_json(arguments.folder / "engines.json", [row.to_dict() for row in rows])
    write_figures(arguments.into, {"build-engines": table(rows)})


def measure(folder: Path, options: Options, sentences: int = SENTENCES) -> list[Row]:
    """One row for the complete build, and one for what workers do."""
    corpus = folder / "engines" / "train.tsv"
    pairs = load_demo_corpus().train
    write_tsv(corpus, pairs[: QUICK_SENTENCES if options.quick else sentences])
    model = load_model(ModelSettings(MODEL, device="cpu"))
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in ENGINES}
    for number in range(options.rounds):
        order = list(ENGINES)[:: 1 if number % 2 == 0 else -1]  # whoever comes first finds the text in memory, or not
        for name in order:
            settings = BuildSettings(**ENGINES[name])
            seconds[name].append(timed_build(folder / "engines" / name, model, corpus, settings))
            print(f"{name}: {seconds[name][-1]}", file=sys.stderr, flush=True)
    figures = {"seconds": seconds, "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    parts = {"the complete build": ("total",), "keys and index": ("store_keys", "store_index")}
    return [
        Row(
            f"seconds of Ray with 1 worker / local, {what}",
            Ratio.of(*([sum(each[part] for part in of) for each in seconds[name]] for name in ("ray", "local"))),
            options.goal(GOAL) if what == "the complete build" else None,
            True,
            figures,
            flaw(statistics.median(each["total"] for each in seconds["local"]), options),
        )
        for what, of in parts.items()
    ]


def flaw(seconds: float, options: Options) -> str:
    """A build of seconds tells little: Ray takes some to start."""
    return "" if options.quick or seconds >= 60 else f"the build takes {seconds:.0f} s, less than a minute"


def timed_build(store: Path, model: Any, corpus: Path, settings: BuildSettings) -> dict[str, float]:
    """The seconds of a build and of its steps."""
    shutil.rmtree(store, ignore_errors=True)
    originals, seconds = {step: getattr(pipeline, step) for step in STEPS}, dict.fromkeys((*STEPS, "total"), 0.0)

    def timed(step: str) -> Any:
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return originals[step](*arguments, **named)
            finally:
                seconds[step] = round(time.perf_counter() - start, 2)

        return run

    start = time.perf_counter()
    try:
        for step in STEPS:
            setattr(pipeline, step, timed(step))
        build_datastore(store, model, open_corpus(corpus), settings)
    finally:
        for step, original in originals.items():
            setattr(pipeline, step, original)
    seconds["total"] = round(time.perf_counter() - start, 2)
    return seconds


if __name__ == "__main__":
    main()

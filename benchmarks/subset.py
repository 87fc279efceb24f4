"""Tokens per second of subset and full kNN-MT over the model alone, measured in turns in one process.

The models: Firefox's small one, and a Transformer of the base size with random weights.  Their datastores have about a
million entries of the demo's text, the larger model's out of jittered copies.

    python benchmarks/subset.py --folder results/subset
"""

from __future__ import annotations

from knn_seq.threads import wait_politely

wait_politely()  # before torch is imported

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rounds import rates, ratios
from speed_models import speed_model, speed_store

from knn_seq.translate import Translator

REAL_SENTENCES = {"firefox": 40_000, "marian-base": 2_500}  # whose keys are computed; the larger model takes its time
SYSTEMS: dict[str, dict[str, Any]] = {
    "base": {"weight": 0.0},
    "full": {"retriever": "full"},
    "subset": {"retriever": "subset"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/subset"))
    parser.add_argument("--models", nargs="+", default=["firefox", "marian-base"])
    parser.add_argument("--entries", type=int, default=1_100_000)
    parser.add_argument("--subset-size", type=int, default=512)
    parser.add_argument("-k", type=int, default=64)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--length", type=int, default=32, help="tokens of an output at most")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    report = []
    for name in arguments.models:
        model = speed_model(name)
        store, test = speed_store(
            arguments.folder / name, model, arguments.entries, REAL_SENTENCES[name], sentences="encoder"
        )
        options = {"k": arguments.k, "temperature": 50.0, "weight": 0.5, "subset_size": arguments.subset_size}
        decoding = {"beam_size": arguments.beam_size, "max_length": arguments.length}
        translator = Translator(store, model, **options, **decoding)
        for batch_size in arguments.batch_sizes:
            sources = [pair.source for pair in test[: max(4, batch_size)]]
            systems: dict[str, Callable[[], int]] = {
                system: partial(tokens, translator, sources, batch_size, settings)
                for system, settings in SYSTEMS.items()
            }
            measured = rates(systems, arguments.rounds)
            for system, ratio in ratios(measured).items():
                speed = statistics.median(measured[system])
                print(f"{name}, {len(store):,} entries, batch {batch_size}, {system}: {speed:,.1f} tokens/s, {ratio}")
                report.append(
                    {
                        "model": name,
                        "entries": len(store),
                        "batch_size": batch_size,
                        "system": system,
                        "tokens_per_second": speed,
                    }
                    | {"of_base": ratio._asdict(), "rounds": measured[system]}
                )
    (arguments.folder / "subset.json").write_text(json.dumps(report, indent=2))


def tokens(translator: Translator, sources: list[str], batch_size: int, settings: dict[str, Any]) -> int:
    """Translate; returns how many tokens came out."""
    return sum(len(output.tokens) for output in translator.translate(sources, batch_size=batch_size, **settings))


if __name__ == "__main__":
    main()

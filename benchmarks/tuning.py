"""Tuning against decoding every point: how much faster it is, and how much worse its choice can be.

    python benchmarks/tuning.py --folder results/tuning

A datastore of the demo's text is tuned on held-out verses; then a coarse grid of settings is decoded on the same ones.
Last, what it costs and saves not to search where the model is sure, on other verses; with `--only-sure` nothing but
that, with the datastore's own settings.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import itertools
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from rounds import rates, ratios

from knn_seq import Datastore, Translator
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.demo.run import MODEL, TRAINING_SENTENCES, write_tsv
from knn_seq.metrics.bleu import bleu
from knn_seq.runtime.progress import Progress
from knn_seq.tune import tune

K = (4, 16, 64)
TEMPERATURES = (0.125, 0.25, 0.5, 1.0)  # times the median distance
WEIGHTS = (0.25, 0.45, 0.65, 0.85)
SURE = (0.99, 0.95, 0.9, 0.8)
SPEED_SENTENCES, ROUNDS = 64, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/tuning"))
    parser.add_argument("--store", type=Path, help="a datastore of the demo's training text that is there already")
    parser.add_argument("--only-sure", action="store_true", help="measure nothing but what `--sure` costs and saves")
    parser.add_argument("--verses", type=int, default=200, help="of the dev set")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    corpus = load_demo_corpus()
    if arguments.store is None:
        write_tsv(arguments.folder / "train.tsv", corpus.train[:TRAINING_SENTENCES])
        Datastore.build(arguments.folder / "store", MODEL, arguments.folder / "train.tsv")
    store = Datastore(arguments.store or arguments.folder / "store")
    translator = Translator(store, beam_size=1)
    dev = corpus.dev[: arguments.verses]
    sources, targets = [pair.source for pair in dev], [pair.target for pair in dev]
    test = [pair.source for pair in corpus.test], [pair.target for pair in corpus.test]
    if arguments.only_sure:
        print_sure(cost_of_being_sure(translator, {}, *test))
        return
    translator.translate(sources[:32])  # what only the first batch pays

    start = time.perf_counter()
    tuning = tune(translator, sources, targets)
    tuning_seconds = time.perf_counter() - start
    print(tuning.table())

    median = store.manifest.defaults["median_distance"]
    points = list(itertools.product(K, [float(f"{share * median:.3g}") for share in TEMPERATURES], WEIGHTS))
    results = []
    start = time.perf_counter()
    with Progress("coarse grid", len(points), "setting") as progress:
        for k, temperature, weight in points:
            outputs = translator.translate(sources, k=k, temperature=temperature, weight=weight)
            results.append((bleu(outputs, targets).value, k, temperature, weight))
            progress.update(1)
    seconds = (time.perf_counter() - start) / len(points)

    sure = cost_of_being_sure(translator, tuning.chosen, *test)
    fine = len(tuning.surfaces[0].grid)
    best, *at = max(results)
    report = {
        "verses": len(dev),
        "entries": len(store),
        "tuning_seconds": tuning_seconds,
        "seconds_of_one_point": seconds,
        "points": fine,
        "times_faster": fine * seconds / tuning_seconds,
        "tuned": {**tuning.chosen, "bleu": tuning.best.score},
        "best_of_coarse_grid": {"k": at[0], "temperature": at[1], "weight": at[2], "bleu": best},
        "difference": tuning.best.score - best,
        "coarse_grid": results,
        "sure": sure,
    }
    (arguments.folder / "tuning.json").write_text(json.dumps(report, indent=2))
    print(
        f"{fine:,} points in {tuning_seconds:.0f} s, {report['times_faster']:.0f} times as fast as to decode each "
        f"({seconds:.1f} s). The best of {len(points)} decoded points: {best:.2f} BLEU at k {at[0]}, temperature "
        f"{at[1]:g}, weight {at[2]:g}; the tuned one: {tuning.best.score:.2f}, {report['difference']:+.2f}."
    )
    print_sure(sure)


def print_sure(sure: dict[str, dict[str, Any]]) -> None:
    """One line for each threshold."""
    for name, figures in sure.items():
        print(f"{name}: {figures['bleu']:.2f} BLEU, {figures['of_base']} of the model's speed")


def cost_of_being_sure(
    translator: Translator, chosen: dict[str, Any], sources: list[str], references: list[str]
) -> dict[str, dict[str, Any]]:
    """BLEU, and speed over the model alone, without a threshold and with some."""
    systems = {"the model alone": {"weight": 0.0}, "always searched": chosen}
    systems |= {f"sure {threshold:g}": {**chosen, "sure": threshold} for threshold in SURE}
    scores = {name: bleu(translator.translate(sources, **own), references).value for name, own in systems.items()}
    few = sources[:SPEED_SENTENCES]
    measured = rates({name: partial(tokens, translator, few, own) for name, own in systems.items()}, ROUNDS)
    return {name: {"bleu": scores[name], "of_base": str(ratio)} for name, ratio in ratios(measured).items()}


def tokens(translator: Translator, sources: list[str], settings: dict[str, Any]) -> int:
    """Translate; returns how many tokens came out."""
    return sum(len(output.tokens) for output in translator.translate(sources, **settings))


if __name__ == "__main__":
    main()

"""Tuning against decoding every point: how much faster it is, and how much worse its choice can be.

    python benchmarks/tuning.py --folder results/tuning

A datastore of the demo's text is tuned on held-out verses; then a coarse grid of settings is decoded on the same ones.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import itertools
import json
import time
from pathlib import Path

from figures import markdown, write_figures

from knn_seq import Datastore, Translator
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.demo.run import MODEL, TRAINING_SENTENCES, write_tsv
from knn_seq.metrics.bleu import bleu
from knn_seq.runtime.progress import Progress
from knn_seq.tune import tune

K = (4, 16, 64)
TEMPERATURES = (0.125, 0.25, 0.5, 1.0)  # times the median distance
WEIGHTS = (0.25, 0.45, 0.65, 0.85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/tuning"))
    parser.add_argument("--store", type=Path, help="a datastore of the demo's training text that is there already")
    parser.add_argument("--sentences", type=int, default=TRAINING_SENTENCES, help="of the datastore")
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    parser.add_argument("--verses", type=int, default=200, help="of the dev set")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    corpus = load_demo_corpus()
    if arguments.store is None:
        write_tsv(arguments.folder / "train.tsv", corpus.train[: arguments.sentences])
        Datastore.build(arguments.folder / "store", MODEL, arguments.folder / "train.tsv")
    store = Datastore(arguments.store or arguments.folder / "store")
    translator = Translator(store, beam_size=1)
    dev = corpus.dev[: arguments.verses]
    sources, targets = [pair.source for pair in dev], [pair.target for pair in dev]
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
    }
    (arguments.folder / "tuning.json").write_text(json.dumps(report, indent=2))
    head = (
        "verses",
        "points",
        "tuning, s",
        "decoding one point, s",
        "times faster",
        "BLEU of the choice",
        "best decoded",
    )
    row = (
        *(f"{number:,}" for number in (len(dev), fine)),
        *(f"{number:,.1f}" for number in (tuning_seconds, seconds)),
        *(f"{report['times_faster']:,.0f}", f"{tuning.best.score:.2f}", f"{best:.2f}"),
    )
    title = f"{len(store):,} entries, greedy; the best is of {len(points)} settings that were decoded one by one."
    write_figures(arguments.into, {"tuning": f"{title}\n\n{markdown(head, [row])}"})


if __name__ == "__main__":
    main()

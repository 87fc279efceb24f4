"""Tuning against decoding every point: how much faster it is, and how much worse its choice can be.

    python benchmarks/tuning.py --into docs/tuning.md

A domain's datastore is tuned on its dev set; then a coarse grid of settings is decoded on the same sentences.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import itertools
import time

from domains import domain_arguments, domain_of, firefox_model, run_script
from figures import markdown, measuring_conditions, write_figures

from knn_seq.metrics.bleu import bleu
from knn_seq.runtime.progress import Progress
from knn_seq.tune import tune

K = (4, 16, 64)
TEMPERATURES = (0.25, 0.5, 1.0)  # times the median distance
WEIGHTS = (0.3, 0.5, 0.7)


def main() -> None:
    run_script(run, domain_arguments(__doc__).parse_args())


def run(arguments: argparse.Namespace) -> None:
    conditions = measuring_conditions()
    domain = domain_of(arguments.domains[0], arguments, firefox_model())
    translator, (sources, targets) = domain.translator, (domain.dev.sources, domain.dev.references)
    translator.translate(sources[:32])  # what only the first batch pays

    start = time.perf_counter()
    tuning = tune(translator, sources, targets, combiner="fixed")
    tuning_seconds = time.perf_counter() - start
    print(tuning.table())

    median = domain.store.manifest.defaults["median_distance"]
    points = list(itertools.product(K, [float(f"{share * median:.3g}") for share in TEMPERATURES], WEIGHTS))
    scores = []
    start = time.perf_counter()
    with Progress("coarse grid", len(points), "setting") as progress:
        for k, temperature, weight in points:
            outputs = translator.translate(sources, combiner="fixed", k=k, temperature=temperature, weight=weight)
            scores.append(bleu(outputs, targets).value)
            progress.update(1)
    seconds = (time.perf_counter() - start) / len(points)

    fine = len(tuning.surfaces[0].grid)
    head = (
        "sentences",
        "points",
        "tuning, s",
        "decoding one point, s",
        "times faster",
        "BLEU of the choice",
        "best decoded",
    )
    row = (
        *(f"{number:,}" for number in (len(sources), fine)),
        *(f"{number:,.1f}" for number in (tuning_seconds, seconds)),
        *(f"{fine * seconds / tuning_seconds:,.0f}", f"{tuning.best.score:.2f}", f"{max(scores):.2f}"),
    )
    title = (
        f"{domain.name}: {len(domain.store):,} entries, greedy, combiner `fixed`; the best is of {len(points)} "
        "settings that were decoded one by one."
    )
    write_figures(arguments.into, {"tuning": f"{title}\n\n{markdown(head, [row])}"}, conditions)


if __name__ == "__main__":
    main()

"""What `--skip learned` saves and costs, with the settings of the build.  Greedy.

    python benchmarks/skip.py --domains bible it --into docs/speed.md

Stored sentences are sources of the datastore: how many come out exactly as a stored target.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import time
from typing import Any

from domains import Domain, domain_arguments, domain_of, firefox_model
from figures import markdown, measuring_conditions, write_figures

from knn_seq import Translator
from knn_seq.evaluate.stored_targets import reproduced
from knn_seq.metrics.bleu import bleu

SYSTEMS: dict[str, dict[str, Any]] = {
    "the model alone": {"weight": 0.0},
    "all tokens searched": {},
    "`--skip learned`": {"skip": "learned"},
}


def main() -> None:
    arguments = domain_arguments(__doc__).parse_args()
    model = firefox_model()
    for name in arguments.domains:
        conditions = measuring_conditions()
        write_figures(arguments.into, {f"skip/{name}": measured(domain_of(name, arguments, model))}, conditions)


def measured(domain: Domain) -> str:
    """The table of a domain."""
    store, test, translator = domain.store, domain.test, domain.translator
    counted = SearchCounter(translator)
    translator.translate(test.sources[:4])  # what is opened at the first use is not to count
    every, alone, rows = 0.0, 0.0, []
    for name, own in SYSTEMS.items():
        counted.queries, start = 0, time.process_time()
        outputs = translator.translate(test.sources, **own)
        written = sum(len(output.tokens) for output in outputs)
        seconds, searched = (time.process_time() - start) / written, counted.queries / written
        every, alone = max(every, searched), alone or seconds
        saved = f"{1 - searched / every:.0%}" if searched else ""
        score = f"{bleu(outputs, test.references).value:.1f}"
        rows.append([name, score, saved, f"{seconds / alone:.2f}", str(reproduced(translator, own, domain.stored))])
    title = (
        f"{domain.name}: {len(store):,} entries, {len(test.sources):,} test sentences, "
        f"combiner {translator.decoder.settings().combiner}."
    )
    head = ["", "BLEU", "searches saved", "processor time of a token / model alone", "stored sentences reproduced"]
    return f"{title}\n\n{markdown(head, rows)}"


class SearchCounter:
    """Counts the queries that a translator's retriever is asked."""

    def __init__(self, translator: Translator) -> None:
        self.queries = 0
        retriever = translator.decoder.retriever(translator.decoder.settings())
        retrieve = retriever.retrieve

        def counting(queries: Any, *rest: Any) -> Any:
            self.queries += len(queries)
            return retrieve(queries, *rest)

        retriever.retrieve = counting  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()

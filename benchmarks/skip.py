"""What `--skip learned` saves and costs, on the demo's text and datastore, with the settings of the build.  Greedy.

    python benchmarks/skip.py --into docs/speed.md

Stored sentences are sources of the datastore: how many come out exactly as a stored target.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

from functools import partial
from typing import Any

from demo_quality import demo_store
from figures import markdown, write_figures
from rounds import command_line, options_of, rates, ratios

from knn_seq import Translator
from knn_seq.demo.run import MODEL
from knn_seq.evaluate.stored_targets import reproduced, stored_sample, stored_targets
from knn_seq.metrics.bleu import bleu
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings

SPEED_SENTENCES, STORED = 64, 30
SYSTEMS: dict[str, dict[str, Any]] = {
    "the model alone": {"weight": 0.0},
    "all tokens searched": {},
    "`--skip learned`": {"skip": "learned"},
}


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    options = options_of(arguments)
    model = load_model(ModelSettings(MODEL))
    store, test = demo_store(arguments.folder, model, options)
    translator = Translator(store, model, beam_size=1)
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    few = sources[:SPEED_SENTENCES]
    measured = ratios(
        rates({name: partial(tokens, translator, few, own) for name, own in SYSTEMS.items()}, options.rounds)
    )
    counted = SearchCounter(translator)
    stored = stored_targets(store.texts, stored_sample(store.texts, STORED))
    every, rows = 0.0, []
    for name, own in SYSTEMS.items():
        counted.queries = 0
        outputs = translator.translate(sources, **own)
        searched = counted.queries / sum(len(output.tokens) for output in outputs)
        every = max(every, searched)
        saved = f"{1 - searched / every:.0%}" if searched else ""
        score = f"{bleu(outputs, references).value:.1f}"
        rows.append((name, score, saved, str(measured[name]), str(reproduced(translator, own, stored))))
    title = f"{len(store):,} entries, {len(test):,} test sentences, combiner {translator.decoder.settings().combiner}."
    head = ("", "BLEU", "searches saved", "speed / model alone", "stored sentences reproduced")
    write_figures(arguments.into, {"skip": f"{title}\n\n{markdown(head, rows)}"})


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


def tokens(translator: Translator, sources: list[str], settings: dict[str, Any]) -> int:
    """Translate; returns how many tokens came out."""
    return sum(len(output.tokens) for output in translator.translate(sources, **settings))


if __name__ == "__main__":
    main()

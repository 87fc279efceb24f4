"""What `--pointers` saves and costs, on the demo's text and datastore, with the settings of the build.

python benchmarks/pointers.py --into docs/speed.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

from functools import partial
from typing import Any

from demo_quality import demo_store
from figures import markdown, write_figures
from rounds import Options, command_line, rates, ratios

from knn_seq import Translator
from knn_seq.build.clusters import store_clusters
from knn_seq.decoding.searches import Searches
from knn_seq.demo.run import MODEL
from knn_seq.metrics.bleu import bleu
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings

SPEED_SENTENCES, ROUNDS = 16, 3
BEAMS = (1, 5)
SYSTEMS: dict[str, dict[str, Any]] = {
    "all tokens searched": {},
    "`--pointers 1 --pointer-agreement 0`": {"pointers": 1, "pointer_agreement": 0.0},
    "`--pointers 2 --pointer-agreement 0.6`": {"pointers": 2, "pointer_agreement": 0.6},
    "`--pointers`": {"pointers": 4},
    "`--pointers --clusters`": {"pointers": 4, "clusters": True},
    "`--pointers 8 --pointer-agreement 0.9`": {"pointers": 8, "pointer_agreement": 0.9},
}


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    options = Options(arguments.rounds or (1 if arguments.quick else ROUNDS), False, arguments.quick)
    model = load_model(ModelSettings(MODEL))
    store, test = demo_store(arguments.folder, model, options)
    store_clusters(store)
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    translators = {beams: Translator(store, model, beam_size=beams) for beams in BEAMS}
    few = sources[:SPEED_SENTENCES]
    speeds = {
        beams: ratios(
            rates({name: partial(tokens, its, few, own) for name, own in SYSTEMS.items()}, options.rounds),
        )
        for beams, its in translators.items()
    }
    rows = []
    for name, own in SYSTEMS.items():
        cells = []
        for beams, translator in translators.items():
            searches = count_searches(translator)
            outputs = translator.translate(sources, **own)
            cells += [f"{bleu(outputs, references).value:.1f}", f"{searches.saved:.0%}", str(speeds[beams][name])]
        rows.append((name, *cells))
    combiner = translators[1].decoder.settings().combiner
    title = f"{len(store):,} entries, {len(test):,} test sentences, combiner {combiner}; speed against the first."
    heads = [f"{what}, beam {beams}" for beams in BEAMS for what in ("BLEU", "searches saved", "speed")]
    write_figures(arguments.into, {"pointers": f"{title}\n\n{markdown(('', *heads), rows)}"})


def count_searches(translator: Translator) -> Searches:
    """What is told of all searches of a translator from now on."""
    searches, batch = Searches(), type(translator.decoder).batch

    def counting(sources: Any, settings: Any, stopwatch: Any = None, at_once: bool = True) -> Any:
        return batch(translator.decoder, sources, settings, stopwatch, at_once, searches)

    translator.decoder.batch = counting  # type: ignore[method-assign, assignment]
    return searches


def tokens(translator: Translator, sources: list[str], settings: dict[str, Any]) -> int:
    """Translate; returns how many tokens came out."""
    return sum(len(output.tokens) for output in translator.translate(sources, **settings))


if __name__ == "__main__":
    main()

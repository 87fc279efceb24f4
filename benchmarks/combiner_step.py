"""What a step of decoding costs with a trained combiner, against the same step with `fixed`: the processor's time.

    python benchmarks/combiner_step.py --into docs/combiners.md

A Transformer of the base size with random weights, which never ends an output, so that both do the same work; the
combiner has random weights as well, which take as long as trained ones.  The datastore is small, so that the search
hides nothing.  Both decode step by step in turns (`lockstep.py`).
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import time
from functools import partial

from decoding_speed import tokens
from figures import markdown, write_figures
from lockstep import rates_of_batches, twin
from rounds import Ratio, command_line, options_of, ratios_by_pieces
from speed_models import sized_store, speed_model

from knn_seq import Datastore, Translator
from knn_seq.combine import COMBINERS
from knn_seq.combine.trained import NetworkShape, TrainedCombiner
from knn_seq.models.network import NetworkModel

MODEL, SIZE, K = "marian-base", "tiny", 32
COMPARED = ("fixed", "learned", "fixed again")  # the last tells how far figures can be trusted
BATCHES = (1, 32)
LENGTH = 12  # tokens of an output
GOAL = 1.03


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    options = options_of(arguments)
    model = speed_model(MODEL)
    store, test = sized_store(arguments.folder, MODEL, model, SIZE)
    translators = {name: translator(store, model, name) for name in COMPARED}
    rows = []
    for batch in BATCHES:
        sources = [pair.source for pair in test[: max(batch, 4)]]
        batches = [sources[start : start + batch] for start in range(0, len(sources), batch)]
        decoding = {"beam_size": 1, "batch_size": batch}
        systems = {
            name: [partial(tokens, each, some, decoding) for some in batches] for name, each in translators.items()
        }
        measured = rates_of_batches(systems, options.rounds, time.process_time)
        ratios = {name: inverse(ratio) for name, ratio in ratios_by_pieces(measured).items()}
        reached = "reached" if ratios["learned"].median <= GOAL else "**not reached**"
        rows.append([f"batch {batch}", shown(ratios["learned"]), reached, shown(ratios["fixed again"])])
    title = f"A Transformer of the base size, greedy, {len(store):,} entries, k {K}; goal: at most {GOAL}."
    head = ["", "`learned` / `fixed`", "", "`fixed` again / `fixed`"]
    write_figures(arguments.into, {"combiner-step": f"{title}\n\n{markdown(head, rows)}"})


def translator(store: Datastore, model: NetworkModel, name: str) -> Translator:
    """One that decodes with a combiner, and with a network of its own that shares its weights with the others."""
    combiner = name.split()[0]
    made = Translator(store, twin(model), combiner=combiner, k=K, max_length=LENGTH)
    kind = COMBINERS.get(combiner)
    if issubclass(kind, TrainedCombiner):
        untrained = kind(NetworkShape(K, model.dimension))
        untrained.network.eval().requires_grad_(False)
        made.decoder.use_combiner(made.decoder.settings(), untrained)
    return made


def inverse(rates: Ratio) -> Ratio:
    """The ratio of times, of a ratio of rates."""
    return Ratio(1 / rates.median, 1 / rates.highest, 1 / rates.lowest)


def shown(ratio: Ratio) -> str:
    """With a digit more than usual: it is about percents."""
    return f"{ratio.median:.3f} ({ratio.lowest:.3f} to {ratio.highest:.3f})"


if __name__ == "__main__":
    main()

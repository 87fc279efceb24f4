"""How long training the default combiner takes for a million entries: the search of the examples, and the training.

    python benchmarks/training_time.py --into docs/combiners.md

The datastore is made of the demo's text, most of it as jittered copies of real keys: the search takes as long among
them, and nothing else depends on how many entries there are.  The processor's time counts, over all threads: on a
machine with several cores less time passes.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import time

from figures import markdown, write_figures
from rounds import command_line, options_of
from speed_models import ENTRIES, speed_model, speed_store

from knn_seq.decoding import KnnDecoder
from knn_seq.settings import SearchSettings
from knn_seq.train import examples_for, train
from knn_seq.train.general import general_sentences

SIZE, COMPUTED = "1m", 2_500  # entries, and sentences whose keys are computed
GOAL = 90  # seconds


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    size = "tiny" if options_of(arguments).quick else SIZE
    model = speed_model("firefox")
    store, _ = speed_store(arguments.folder / f"training-{size}", model, ENTRIES[size], COMPUTED)
    clocks = [(time.process_time(), time.perf_counter())]
    examples = examples_for(KnnDecoder(store, model), SearchSettings(), general=general_sentences(model))
    clocks.append((time.process_time(), time.perf_counter()))
    trained = train(examples, SearchSettings())
    clocks.append((time.process_time(), time.perf_counter()))
    spans = {"search of the examples": (0, 1), "training": (1, 2), "together": (0, 2)}
    rows = [
        [name, *(f"{after - before:.0f} s" for before, after in zip(clocks[start], clocks[end], strict=True))]
        for name, (start, end) in spans.items()
    ]
    title = f"{len(store):,} entries, {trained.tokens:,} tokens to train with; goal: {GOAL} s on two cores."
    text = f"{title}\n\n{markdown(['', 'processor', 'passed'], rows)}"
    write_figures(arguments.into, {"training-time": text})


if __name__ == "__main__":
    main()

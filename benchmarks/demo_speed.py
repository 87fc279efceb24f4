"""Speed of full and subset kNN-MT over the model alone, with the demo's datastore, greedy and with beam 5.

The settings are those of the build: the combiner that it trained, and as many neighbours as that weighs.  All systems
decode the same batch at once, a step of each at a time (see `lockstep.py`).

    python benchmarks/demo_speed.py --into README.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import itertools
from dataclasses import replace

from decoding_speed import LENGTH, Setting, compared, systems_for
from demo_quality import demo_store
from figures import markdown, write_figures
from rounds import Options, Row, command_line, table
from speed_models import speed_model

SUBSET_SIZE, ROUNDS = 512, 3
GOAL = 0.75  # of full search
BEAMS, BATCHES = (1, 5), (1, 32)
COUNTS = {1: 16, 32: 64}  # sentences of a round, by the batch size
SYSTEMS = {"full": "kNN-MT, full search", "subset": "subset kNN-MT", "base again": "control: the model alone again"}


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    options = Options(arguments.rounds or (1 if arguments.quick else ROUNDS), False, arguments.quick)
    model = speed_model("firefox")
    store, test = demo_store(arguments.folder, model, options)
    translators = systems_for(store, model, {"subset_size": SUBSET_SIZE, "max_length": LENGTH})
    combined = translators["full"].settings({})[0]
    found: dict[str, list[str]] = {name: [] for name in SYSTEMS}
    measured: list[Row] = []
    for beam, batch in itertools.product(BEAMS, BATCHES):
        rows = compared(translators, test, Setting("firefox", "demo", beam, batch), options, COUNTS[batch])
        for row in rows:
            found[row.figures["system"]].append(f"{row.ratio.median:.2f}")
            goal = options.goal(GOAL) if row.figures["system"] == "full" else None
            measured.append(replace(row, goal=goal))
    print(table(measured))
    head = [
        f"{'greedy' if beam == 1 else f'beam {beam}'}, batch {batch}"
        for beam, batch in itertools.product(BEAMS, BATCHES)
    ]
    title = (
        f"Tokens a second relative to the model alone: {len(store):,} entries, combiner {combined.combiner}, "
        f"k {combined.k}, subsets of {SUBSET_SIZE} sentences, medians of {options.rounds} rounds."
    )
    text = f"{title}\n\n{markdown(['', *head], [[label, *found[name]] for name, label in SYSTEMS.items()])}"
    write_figures(arguments.into, {"readme-speed": text})


if __name__ == "__main__":
    main()

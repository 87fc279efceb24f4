"""Tokens per second of full and subset kNN-MT over the model alone, step by step in turns in one process.

The models: Firefox's small one, and Transformers of the base and the big size with random weights, which never end an
output, so that all systems write the same number of tokens.  Beyond a million entries, and for the larger models, a
datastore is made of jittered copies of real keys.

    python benchmarks/decoding_speed.py --models firefox marian-base --sizes 1m --beams 5 --batches 1 32
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import itertools
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lockstep import rates_of_batches, twin
from rounds import Options, Row, command_line, options_of, ratios_by_pieces, table
from speed_models import ENTRIES, SIZES, sized_store, speed_model

from knn_seq import Datastore
from knn_seq.corpus import SentencePair
from knn_seq.models.network import NetworkModel
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.translator import Translator

MODELS = ("firefox", *SIZES)
SYSTEMS: dict[str, dict[str, Any]] = {
    "base": {"weight": 0.0},
    "full": {"retriever": "full"},
    "subset": {"retriever": "subset"},
    "base again": {"weight": 0.0},  # tells how far figures can be trusted
}
LENGTH = 32  # tokens of an output at most
SENTENCES, BATCHES = 16, 2  # of a round, at least: what disturbs one of them is not to count
FEW_SENTENCES, FEW_BATCHES = 4, 1  # the same where the complete grid is measured
TIMES = {"firefox": 2}  # as many for a model that is so much faster
GOALS = {("firefox", "full"): 0.75, ("marian-base", "full"): 0.75}  # with beam 5 and a million entries
GOAL_SIZE, GOAL_BEAM = "1m", 5
K = 64
NPROBE = 32  # for keys of random weights: their distances let a query probe too few lists by itself
PRODUCT_ROWS = (5, 160)  # beam 5, one sentence and 32 of them


class Setting(NamedTuple):
    """What decodes with what."""

    model: str
    size: str  # of the datastore, a name of `ENTRIES`
    beam: int
    batch: int

    def __str__(self) -> str:
        search = "greedy" if self.beam == 1 else f"beam {self.beam}"
        size = self.size.replace("m", "M") if self.size[0].isdigit() else f"the {self.size}'s"
        return f"{self.model}, {size} entries, {search}, batch {self.batch}"


class Grid(NamedTuple):
    """All settings with these values, model by model, datastore by datastore."""

    models: Sequence[str] = ("firefox", "marian-base")
    sizes: Sequence[str] = ("1m",)
    beams: Sequence[int] = (5,)
    batches: Sequence[int] = (1, 32)

    @classmethod
    def of(cls, options: Options) -> Grid:
        """What is measured if nobody says what."""
        if options.quick:
            return cls(sizes=("tiny",), batches=(1, 4))
        return cls(MODELS, ("100k", "1m", "10m"), (5, 1)) if options.full else cls()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS)
    parser.add_argument("--sizes", nargs="+", choices=ENTRIES)
    parser.add_argument("--beams", nargs="+", type=int)
    parser.add_argument("--batches", nargs="+", type=int)
    arguments = parser.parse_args()
    options = options_of(arguments)
    given = {name: getattr(arguments, name) for name in Grid._fields if getattr(arguments, name)}
    print(table(measure(arguments.folder, options, Grid.of(options)._replace(**given))))


def measure(folder: Path, options: Options, grid: Grid | None = None) -> list[Row]:
    """Rows for each setting: full and subset kNN-MT against the model alone."""
    grid = grid or Grid.of(options)
    rows: list[Row] = []
    for name in grid.models:
        model = speed_model(name)
        print(product_times(name, model), file=sys.stderr, flush=True)
        for size in grid.sizes:
            store, test = sized_store(folder, name, model, size)
            probes = {} if name == "firefox" else {"nprobe": NPROBE}
            search = {"k": K, "temperature": 50.0, "weight": 0.5, "subset_size": 512, "max_length": LENGTH}
            checked = store.check_index(k=K, index_options=probes)
            print(f"{name}, {size}: recall@{K} {checked.recall:.3f}", file=sys.stderr, flush=True)
            translators = systems_for(store, model, search, probes)
            for beam, batch in itertools.product(grid.beams, grid.batches):
                rows += compared(translators, test, Setting(name, size, beam, batch), options)
    return rows


def systems_for(
    store: Datastore, model: NetworkModel, settings: dict[str, Any], index_options: dict[str, Any] | None = None
) -> dict[str, Translator]:
    """A translator for each system, with a network of its own that shares its weights with the others."""
    parts = {name: {"index_options": index_options} if name == "full" else {} for name in SYSTEMS}
    return {name: Translator(store, twin(model), **{**settings, **own, **parts[name]}) for name, own in SYSTEMS.items()}


def compared(
    translators: Mapping[str, Translator],
    test: list[SentencePair],
    setting: Setting,
    options: Options,
    count: int | None = None,
) -> list[Row]:
    """All systems in turns, step by step, then once more each with a stopwatch; `count` sentences in a round."""
    sentences, batches_at_least = (FEW_SENTENCES, FEW_BATCHES) if options.full else (SENTENCES, BATCHES)
    count = count or max(sentences, batches_at_least * setting.batch) * TIMES.get(setting.model, 1)
    if options.quick:
        count = setting.batch
    sources = sorted((pair.source for pair in test[:count]), key=len)
    batches = [sources[start : start + setting.batch] for start in range(0, len(sources), setting.batch)]
    decoding = {"beam_size": setting.beam, "batch_size": setting.batch}
    systems = {
        name: [partial(tokens, translator, batch, decoding) for batch in batches]
        for name, translator in translators.items()
    }
    measured = rates_of_batches(systems, options.rounds)
    rows = []
    for system, ratio in ratios_by_pieces(measured).items():
        speed = statistics.median(itertools.chain.from_iterable(measured[system]))
        if system == "base":
            print(f"{setting}, base: {speed:,.1f} tokens/s", file=sys.stderr, flush=True)
            continue
        translator = translators[system]
        spent = shares(translator, sources, decoding)
        parts = ", ".join(f"{part} {share:.0%}" for part, share in spent.items())
        print(f"{setting}, {system}: {speed:,.1f} tokens/s, {ratio}; {parts}", file=sys.stderr, flush=True)
        counts = setting.size == GOAL_SIZE and setting.beam == GOAL_BEAM
        figures = {
            **setting._asdict(),
            "entries": len(translator.store),
            "system": system,
            "shares": spent,
            "tokens_per_second": {name: measured[name] for name in ("base", system)},
        }
        goal = GOALS.get((setting.model, system)) if counts else None
        what = f"{system} kNN-MT" if translator.settings({})[0].weight else system
        rows.append(Row(f"{what} / base, {setting}", ratio, goal, False, figures))
    return rows


def tokens(translator: Translator, sources: list[str], settings: dict[str, Any]) -> int:
    """Translate; returns how many tokens came out."""
    return sum(len(output.tokens) for output in translator.translate(sources, **settings))


def shares(translator: Translator, sources: list[str], settings: dict[str, Any]) -> dict[str, float]:
    """What searching and combining take of all the time."""
    translator.stopwatch = Stopwatch()
    start = time.perf_counter()
    translator.translate(sources, **settings)
    seconds = time.perf_counter() - start
    spent = {part: own / seconds for part, own in translator.stopwatch.seconds.items()}
    translator.stopwatch = None
    return spent


@torch.no_grad()
def product_times(name: str, model: NetworkModel) -> str:
    """Shows that the model alone runs at its best: with frozen weights torch may choose a far slower product."""
    head = model.network.lm_head
    if not head.weight.is_floating_point():
        return f"{name}, output projection in {head.weight.dtype}"
    as_it_is = head.weight.requires_grad
    times = []
    for rows in PRODUCT_ROWS:
        states = torch.randn(rows, 1, head.weight.shape[1])
        found = {}
        for trainable in (True, False):
            head.weight.requires_grad_(trainable)
            head(states)
            started = time.perf_counter()
            for _ in range(5):
                head(states)
            found[trainable] = 200 * (time.perf_counter() - started)
        times.append(f"{rows} rows {found[as_it_is]:.1f} ms (otherwise {found[not as_it_is]:.1f})")
    head.weight.requires_grad_(as_it_is)
    return f"{name}, output projection with requires_grad={as_it_is}, as the model has it: {', '.join(times)}"


if __name__ == "__main__":
    main()

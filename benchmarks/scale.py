"""How the cost of an index grows with the number of keys: what is measured here, and what a model of cost makes of it.

Keys are those of the Firefox model over the demo's text in random order, and beyond them jittered copies; each size has
the recipe that a build would choose.  Queries are states of the decoder over held-out text.  Beyond a million keys the
search probes more (nprobe, refine_factor) until it finds as many of the true neighbours as at a million.  All sizes
are searched in turns.

The constants of `knn_seq.plan.cost` are fitted on sizes from 100,000 to 3 million keys; what they predict for the
others is compared with what those really took.  Run by itself and not by `bench.py`, the script also builds indexes
whose lists are found by a graph, and one of wide keys.  Writes scale.json and scale.svg (for `bench.py` scale-bench);
with --into the tables of a page, too, and the picture beside it.  A run that was killed resumes: keys and indexes stay.

    python benchmarks/scale.py --largest 20m --into docs/scale.md
    python benchmarks/scale.py --tables --into docs/scale.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import itertools
import os
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import measuring_conditions, write_figures
from numpy.typing import NDArray
from rounds import Options, Row, command_line, options_of, rates, rates_by_pieces, ratios_by_pieces, table
from scale_report import draw, evaluate, tables
from sized_index import BLOCK, SizedIndex, grown_keys
from speed_models import JITTER, held_out_states, sized_store, speed_model
from torch import Tensor

from knn_seq.index.recipe import default_recipe
from knn_seq.plan import measure_key_rate
from knn_seq.plan.cost.measure import seconds_to_fetch, with_lists
from knn_seq.runtime.sizes import parse_count
from knn_seq.storage.atomic import read_json, write_json

QUERIES, COUNTS = 320, (5, 160)  # a sentence with 5 beams, and 32 such sentences
REPEATS = 10  # of all queries in a round
SIZES = (30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
QUICK_SIZES = (25_000, 40_000, 60_000)
DEFAULT_LARGEST = 10_000_000
REFERENCE = 1_000_000  # whose recall larger indexes have to reach, and whose cost they are compared with
GOAL = 2.0
OTHERWISE: tuple[dict[str, int], ...] = (
    {},
    {"nprobe": 8},
    {"nprobe": 128},
    {"refine_factor": 2},
)  # to tell costs apart
SMALL_COUNTS = (1, 5, 160)
GRAPHS = ((100_000, 1024), (300_000, 4096), (1_000_000, 16_384))  # keys, and lists that a graph finds
QUICK_GRAPHS = ((25_000, 128), (40_000, 256))
WIDE, WIDE_KEYS, QUICK_WIDE_KEYS = 1024, 300_000, 25_000


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--largest", type=parse_count, help=f"number of keys (default: {DEFAULT_LARGEST:,})")
    parser.add_argument("--tables", action="store_true", help="measure nothing: make the tables of the last run again")
    arguments = parser.parse_args()
    options = options_of(arguments)
    if not arguments.tables:
        print(table(measure(arguments.folder, options, arguments.largest, everything=True)))
    report = read_json(work_folder(arguments.folder, options) / "scale.json")
    write_figures(arguments.into, tables(report), report["conditions"])
    if arguments.into:
        draw(report, arguments.into.with_suffix(".svg"))


def work_folder(folder: Path, options: Options) -> Path:
    return folder / ("scale-quick" if options.quick else "scale")


def measure(folder: Path, options: Options, largest: int | None = None, everything: bool = False) -> list[Row]:
    """Rows: a search among the most keys against one among a million, for few and many queries at a time."""
    limit = largest or DEFAULT_LARGEST
    every = QUICK_SIZES if options.quick else SIZES
    sizes = sorted({size for size in every if size <= limit} | ({limit} if largest else set()))
    model = speed_model("firefox")
    store, test = sized_store(folder, "firefox", model, "tiny" if options.quick else "1m")
    queries = held_out_states(model, test[:60], QUERIES)
    key_rates = {"firefox:pt-en": measure_key_rate(model)}
    del model
    work = work_folder(folder, options)
    work.mkdir(parents=True, exist_ok=True)
    keys = grown_keys(work, store.keys, sizes[-1])
    sized = {size: SizedIndex(work / f"index-{size}", keys[:size], queries) for size in sizes}
    reference = REFERENCE if REFERENCE in sizes else sizes[len(sizes) // 2]
    others: list[SizedIndex] = []
    if everything:
        key_rates["Transformer-big"] = measure_key_rate(speed_model("marian-base" if options.quick else "marian-big"))
        others = other_indexes(work, keys, queries, options.quick)
    search_in_turns([*sized.values(), *others], min(options.rounds, 3))
    recall = sized[reference].recall()
    for size in sizes[sizes.index(reference) :]:
        sized[size].look_for(recall)
    rows = []
    for count in COUNTS:
        # In turns of a few batches: noise hits all alike, and as beside a model nobody finds its keys in the cache.
        turns = {
            str(size): REPEATS * [partial(sized[size].search, count, sized[size].same_recall, 1)] for size in sizes
        }
        measured = rates_by_pieces(turns, options.rounds)
        for size in sizes:
            rate = statistics.median(itertools.chain.from_iterable(measured[str(size)]))
            sized[size].note_search(count, 1 / rate, "same recall", sized[size].same_recall)
        most, fewer = str(sizes[-1]), str(reference)
        slower = ratios_by_pieces({most: measured[most], fewer: measured[fewer]})[fewer]
        what = f"a search among {sizes[-1]:,} keys / {reference:,}, same recall, {count} queries"
        own = sized[sizes[-1]].recall(sized[sizes[-1]].same_recall)
        flaw = f"recall {own:.3f} instead of {recall:.3f}" if own < recall else ""
        goal = GOAL if (reference, sizes[-1]) == (REFERENCE, SIZES[-1]) else None  # it is for these two sizes
        rows.append(Row(what, slower, goal, True, {"queries_per_second": measured}, flaw))
    report = {
        "conditions": measuring_conditions(),
        "key_rates": key_rates,
        "fetch": fetch_seconds(work, keys),
        "runs": [each.figures for each in (*sized.values(), *others)],
        "rows": [row.to_dict() for row in rows],
    }
    report |= evaluate(report)
    name = "scale" if everything else "scale-bench"
    write_json(work / f"{name}.json", report)
    draw(report, work / f"{name}.svg")
    return rows


def widened_keys(work: Path, keys: NDArray[Any], queries: Tensor) -> tuple[NDArray[Any], Tensor]:
    """Keys and queries turned into a space of more dimensions, for the time that they take there."""
    turn = torch.randn(keys.shape[1], WIDE, generator=torch.Generator().manual_seed(0)) / keys.shape[1] ** 0.5
    path = work / f"wide-{len(keys)}.f16"
    if not path.exists():
        partial = path.with_suffix(".part")
        with partial.open("wb") as file:
            for start in range(0, len(keys), BLOCK):
                rows = torch.from_numpy(np.array(keys[start : start + BLOCK])).float() @ turn
                moved = rows + JITTER * rows.std() * torch.randn(rows.shape)  # else 256 dimensions would hold it all
                file.write(moved.half().numpy().tobytes())
        partial.rename(path)
    return np.memmap(path, np.float16, "r", shape=(len(keys), WIDE)), queries @ turn


def other_indexes(work: Path, keys: NDArray[Any], queries: Tensor, quick: bool) -> list[SizedIndex]:
    """Indexes for what the default recipes of these sizes lack: lists that a graph finds, and wide keys."""
    found = []
    for entries, lists in QUICK_GRAPHS if quick else GRAPHS:
        if entries <= len(keys):
            recipe = with_lists(default_recipe(entries, keys.shape[1]), lists).replace(
                f"IVF{lists}", f"IVF{lists}_HNSW32"
            )
            found.append(SizedIndex(work / f"graph-{entries}", keys[:entries], queries, recipe))
    entries = min(QUICK_WIDE_KEYS if quick else WIDE_KEYS, len(keys))
    wide, turned = widened_keys(work, keys[:entries], queries)
    return [*found, SizedIndex(work / f"wide-{entries}", wide, turned)]


def search_in_turns(indexes: list[SizedIndex], rounds: int) -> None:
    """All indexes searched by batches of different sizes, more and less thoroughly; noted with each."""
    asked = list(itertools.product(SMALL_COUNTS, OTHERWISE, indexes))
    systems = {str(i): partial(index.search, count, options, 1) for i, (count, options, index) in enumerate(asked)}
    measured = rates(systems, rounds)
    for i, (count, options, index) in enumerate(asked):
        index.note_search(count, 1 / statistics.median(measured[str(i)]), "other" if options else "default", options)


def fetch_seconds(work: Path, keys: NDArray[Any]) -> float:
    """Seconds until a key is there that only the disk has: of a copy that nothing has mapped."""
    path = work / "fetched.f16"
    np.asarray(keys[: min(len(keys), 1 << 20)]).tofile(path)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        seconds = seconds_to_fetch(file.fileno(), path.stat().st_size)
    path.unlink()
    return seconds


if __name__ == "__main__":
    main()

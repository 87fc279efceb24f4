"""Indexes larger than one memory: shards against one index, and lists on the disk against lists in memory.

Keys are those of the Firefox model over the demo's text, queries states of its decoder over held-out text.  All indexes
are searched in turns.  Four shards are trained as the one index is, so they find as many neighbours; the recall of both
is printed.  Lists on the disk are warm (in the system's cache, as after the first minutes of translating); cold ones
are searched once for each round after their pages were dropped from memory.

    python benchmarks/shards.py --folder results/speed
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import os
import sys
import time
from functools import partial
from pathlib import Path

from figures import write_figures
from rounds import Options, Ratio, Row, command_line, options_of, rates, table
from speed_models import held_out_states, sized_store, speed_model
from torch import Tensor

from knn_seq.index.base import DESCRIPTION, INDEXES, SearchIndex
from knn_seq.index.exact import exact_search
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library.disk import LISTS_NAME
from knn_seq.index.recipe import default_recipe, lists_for
from knn_seq.storage import DatastoreFolder

K, QUERIES, COUNTS = 64, 320, (5, 160)  # a sentence with 5 beams, and 32 such sentences
SHARDS = 4


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    rows = measure(arguments.folder, options_of(arguments))
    write_figures(arguments.into, {"shards": table(rows)})


def measure(folder: Path, options: Options) -> list[Row]:
    """Rows: time of a search in shards / in one index, and with lists on the disk / in memory."""
    model = speed_model("firefox")
    size = "tiny" if options.quick else "1m"
    store, test = sized_store(folder, "firefox", model, size)
    queries = held_out_states(model, test[:60], QUERIES)
    del model
    entries, dimension = store.keys.shape
    exact = exact_search(store.keys, queries, K).ids
    codes = f"IVF{lists_for(entries)},PQ{dimension // 4}"
    rows = []
    for one in (codes, default_recipe(entries, dimension)):
        both = {name: built(store, recipe) for name, recipe in ((one, one), ("shards", f"shards:{SHARDS}x{one}"))}
        for name, index in both.items():
            found = index.search(queries, K).ids
            recall = (exact.unsqueeze(2) == found.unsqueeze(1)).any(2).float().mean()
            print(f"{name} of {one}: recall@{K} {recall:.3f}", file=sys.stderr, flush=True)
        rows += compared(both, queries, options, f"{SHARDS} shards of {one} / one index")
    both = {"in memory": built(store, codes), "on the disk": on_disk(store, codes)}
    rows += compared(both, queries, options, f"lists of {codes} on the disk, warm / in memory")
    rows.append(cold(store, codes, queries, options))
    return rows


def built(store: DatastoreFolder, recipe: str) -> SearchIndex:
    """An index of the datastore's keys in memory, built once, then found again."""
    folder, kind = place(store, recipe), "shards" if recipe.startswith("shards:") else "faiss"
    if not (folder / DESCRIPTION).exists():
        INDEXES.get(kind).build(store.keys, recipe.removeprefix("shards:")).save(folder)
    index = INDEXES.get(kind).load(folder)
    if index.needs_keys:
        index.attach_keys(store.keys)
    return index


def on_disk(store: DatastoreFolder, recipe: str) -> SearchIndex:
    """The same index with its lists on the disk."""
    memory, folder = place(store, recipe), place(store, recipe, "-disk")
    if not (folder / DESCRIPTION).exists():
        FaissIndex.load(memory, writable=True).merge_on_disk([memory], folder)
    return FaissIndex.load(folder)


def place(store: DatastoreFolder, recipe: str, mark: str = "") -> Path:
    """Where an index is saved."""
    return store.path.parent / "shards" / f"{recipe.replace(':', '-')}{mark}"


def compared(both: dict[str, SearchIndex], queries: Tensor, options: Options, what: str) -> list[Row]:
    """The time of the second index / that of the first, for few and many queries at a time."""
    rows = []
    for count in COUNTS:
        measured = rates({name: partial(search, index, queries, count) for name, index in both.items()}, options.rounds)
        first, second = measured.values()
        rows.append(Row(f"{what}, {count} queries", Ratio.of(first, second), figures={"queries_per_second": measured}))
    return rows


def search(index: SearchIndex, queries: Tensor, count: int) -> int:
    """Search for all queries, so many at a time; returns how many there are."""
    for start in range(0, len(queries), count):
        index.search(queries[start : start + count], K)
    return len(queries)


def cold(store: DatastoreFolder, recipe: str, queries: Tensor, options: Options) -> Row:
    """The first search over lists on the disk / the second one for the same queries."""
    count = COUNTS[0]
    seconds: dict[str, list[float]] = {"first": [], "second": []}
    for _ in range(options.rounds):
        drop_pages(place(store, recipe, "-disk") / LISTS_NAME)
        index = on_disk(store, recipe)
        for times in seconds.values():
            start = time.perf_counter()
            index.search(queries[:count], K)
            times.append(time.perf_counter() - start)
        del index  # no page that is mapped is dropped
    what = f"first search over lists of {recipe} on the disk, cold / second, {count} queries"
    return Row(what, Ratio.of(seconds["first"], seconds["second"]), figures={"seconds": seconds})


def drop_pages(path: Path) -> None:
    """Let the system drop what it has in memory of a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()

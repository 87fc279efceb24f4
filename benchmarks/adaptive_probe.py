"""Our search of an IVF index with `Refine(keys)` against faiss's own: 32 lists for every query, `IndexRefine`.

The indexes and queries are those of `scale.py`, which are built if they are not there.

    python benchmarks/adaptive_probe.py --folder results/speed
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import write_figures
from numpy.typing import NDArray
from rounds import Options, Row, command_line, options_of, rates_by_pieces, ratios_by_pieces, table
from scale import QUERIES, QUICK_SIZES, work_folder
from sized_index import NPROBE, REPEATS, K, SizedIndex, grown_keys
from speed_models import held_out_states, sized_store, speed_model

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import inverted_lists
from knn_seq.index.faiss_library.stored_keys import view_of

SIZE, LARGE_SIZES = 1_000_000, (1_000_000, 10_000_000)  # of keys; the larger ones with --full
COUNTS = (1, 5, 20, 160)
FEW_QUERIES = 5  # for which it is to be no slower


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    rows = measure(arguments.folder, options_of(arguments))
    write_figures(arguments.into, {"adaptive-probe": table(rows)})


def measure(folder: Path, options: Options) -> list[Row]:
    """Rows: how many times as fast ours is; recalls go to the terminal."""
    sizes = QUICK_SIZES[-1:] if options.quick else LARGE_SIZES if options.full else (SIZE,)
    model = speed_model("firefox")
    store, test = sized_store(folder, "firefox", model, "tiny" if options.quick else "1m")
    queries = held_out_states(model, test[:60], QUERIES)
    work = work_folder(folder, options)
    work.mkdir(parents=True, exist_ok=True)
    keys = grown_keys(work, store.keys, sizes[-1])
    rows = []
    for size in sizes:
        ours = SizedIndex(work / f"index-{size}", keys[:size], queries)
        theirs = PlainSearch(ours, keys[:size])
        print(
            f"{size:,} keys: recall@{K} {theirs.recall():.4f} with {NPROBE} lists, {ours.recall():.4f} with near ones, "
            f"{ours.lists_probed({}):.1f} of them",
            file=sys.stderr,
            flush=True,
        )
        for count in COUNTS:
            systems = {
                "faiss": REPEATS * [partial(theirs.search, count)],
                "ours": REPEATS * [partial(ours.search, count, None, 1)],
            }
            ratio = ratios_by_pieces(rates_by_pieces(systems, options.rounds))["ours"]
            goal = options.goal(1.0) if count <= FEW_QUERIES else None
            rows.append(Row(f"speed of our search / faiss's, {size:,} keys, {count} queries", ratio, goal))
    return rows


class PlainSearch:
    """A copy of the same index, searched by faiss alone.

    Args:
        ours: Ours.
        keys: (entries, dimension), those of the index.
    """

    def __init__(self, ours: SizedIndex, keys: NDArray[Any]) -> None:
        self.queries, self.exact = ours.queries.numpy(), ours.exact
        self._lists = faiss.clone_index(ours.index.index)
        lists: Any = inverted_lists(self._lists)
        lists.nprobe = NPROBE
        self._keys = view_of(keys, inner_product=False)
        self._index = faiss.IndexRefine(self._lists, self._keys)
        self._index.k_factor = ours.index.options["refine_factor"]

    def search(self, count: int) -> int:
        """Search all queries, so many at a time; returns how many they were."""
        for start in range(0, len(self.queries), count):
            self._index.search(self.queries[start : start + count], K)
        return len(self.queries)

    def recall(self) -> float:
        """The share of the true neighbours that are found."""
        found = torch.from_numpy(np.asarray(self._index.search(self.queries, K)[1]))
        return (self.exact.unsqueeze(2) == found.unsqueeze(1)).any(2).float().mean().item()


if __name__ == "__main__":
    main()

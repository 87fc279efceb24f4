"""How the cost of an index grows with the number of keys: training, adding, searching; fitted and drawn.

Keys are those of the Firefox model over the demo's text in random order, and beyond them jittered copies; each size has
the recipe that a build would choose.  Queries are states of the decoder over held-out text.  Beyond a million keys the
search looks further (nprobe, refine_factor) until it finds as many of the true neighbours as at a million.  All sizes
are searched in turns.  Writes scale.json, with the constants a and b of cost = a · keys^b, and scale.png.

    python benchmarks/scale.py --largest 10000000
"""

from __future__ import annotations

from knn_seq.threads import wait_politely

wait_politely()  # before torch is imported

import itertools
import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rounds import Options, Ratio, Row, command_line, options_of, rates, table
from speed_models import JITTER, held_out_states, sized_store, speed_model
from torch import Tensor

from knn_seq.index.exact import exact_search
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.recipe import default_recipe
from knn_seq.storage.atomic import read_json, write_json

K, QUERIES, COUNTS = 64, 320, (5, 160)  # a sentence with 5 beams, and 32 such sentences
REPEATS = 3  # of all queries in a round
SIZES = (30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
QUICK_SIZES = (25_000, 40_000, 60_000)
DEFAULT_LARGEST = 10_000_000
REFERENCE = 1_000_000  # whose recall larger indexes have to reach, and whose cost they are compared with
GOAL = 2.0
BLOCK = 1 << 16  # keys made at a time
PROBES = (32, 40, 48, 64, 80, 96, 128, 192, 256)
FACTORS = (8, 12, 16, 24, 32)
COSTS = {"training": "training, s", "adding": "adding, s"} | {
    f"search_{count}": f"a query among {count}, s" for count in COUNTS
}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--largest", type=int, help=f"number of keys (default: {DEFAULT_LARGEST:,})")
    arguments = parser.parse_args()
    print(table(measure(arguments.folder, options_of(arguments), arguments.largest)))


def measure(folder: Path, options: Options, largest: int | None = None) -> list[Row]:
    """Rows: a search among the most keys against one among a million, for few and many queries at a time."""
    limit = largest or DEFAULT_LARGEST
    every = QUICK_SIZES if options.quick else SIZES
    sizes = sorted({size for size in every if size <= limit} | ({limit} if largest else set()))
    model = speed_model("firefox")
    store, test = sized_store(folder, "firefox", model, "tiny" if options.quick else "1m")
    queries = held_out_states(model, test[:60], QUERIES)
    del model
    work = folder / ("scale-quick" if options.quick else "scale")
    work.mkdir(parents=True, exist_ok=True)
    keys = grown_keys(work, store.keys, sizes[-1])
    sized = {size: SizedIndex(work, keys[:size], queries) for size in sizes}
    reference = REFERENCE if REFERENCE in sizes else sizes[len(sizes) // 2]
    for size in sizes[sizes.index(reference) + 1 :]:
        sized[size].look_further(sized[reference].recall)
    rows = []
    for count in COUNTS:
        measured = rates({str(size): partial(sized[size].search, count) for size in sizes}, options.rounds)
        for size in sizes:
            sized[size].figures[f"search_{count}"] = 1 / statistics.median(measured[str(size)])
        slower = Ratio.of(measured[str(reference)], measured[str(sizes[-1])])
        what = f"a search among {sizes[-1]:,} keys / {reference:,}, same recall, {count} queries"
        own, wanted = sized[sizes[-1]].recall, sized[reference].recall
        flaw = f"recall {own:.3f} instead of {wanted:.3f}" if own < wanted else ""
        goal = GOAL if (reference, sizes[-1]) == (REFERENCE, SIZES[-1]) else None  # it is for these two sizes
        rows.append(Row(what, slower, goal, True, {"queries_per_second": measured}, flaw))
    figures = [sized[size].figures for size in sizes]
    fits = {cost: fit(figures, cost) for cost in COSTS}
    write_json(work / "scale.json", {"sizes": figures, "fits": fits, "rows": [row.to_dict() for row in rows]})
    for each in figures:
        print(json.dumps(each), file=sys.stderr)
    for cost, (a, b) in fits.items():
        print(f"{COSTS[cost]}: {a:.3g} · keys^{b:.2f}", file=sys.stderr, flush=True)
    draw(figures, fits, work / "scale.png")
    return rows


def grown_keys(work: Path, real: NDArray[Any], entries: int) -> NDArray[Any]:
    """So many keys in a file, (entries, dimension) float16: the real ones shuffled, then jittered copies of them.

    The file grows block by block, so a run that was killed goes on, and one with more keys keeps those that are there.
    """
    path, dimension = work / f"keys-{len(real)}.f16", real.shape[1]
    order = np.random.default_rng(0).permutation(len(real))
    spread = JITTER * float(real[np.sort(order[:10_000])].astype(np.float32).std())
    blocks = -(-entries // BLOCK)
    with path.open("ab") as file:
        there = file.tell() // (2 * dimension * BLOCK)
        os.truncate(path, 2 * dimension * BLOCK * there)
        file.seek(0, os.SEEK_END)
        for block in range(there, blocks):
            rows = np.arange(block * BLOCK, (block + 1) * BLOCK)
            made = torch.from_numpy(real[order[rows % len(real)]]).float()
            noise = torch.randn(made.shape, generator=torch.Generator().manual_seed(block))
            noise[torch.from_numpy(rows < len(real))] = 0  # the first time a key comes it stays as it is
            file.write((made + spread * noise).half().numpy().tobytes())
            if block % 16 == 0:
                print(f"keys: {block * BLOCK:,} of {entries:,}", file=sys.stderr, flush=True)
    return np.memmap(path, np.float16, "r", shape=(blocks * BLOCK, dimension))[:entries]


class SizedIndex:
    """The default index of so many keys, and what it costs; built once, then found again.

    Args:
        work: Where it is saved.
        keys: (entries, dimension).
        queries: (n, dimension)
    """

    def __init__(self, work: Path, keys: NDArray[Any], queries: Tensor) -> None:
        self.queries = queries
        recipe = default_recipe(*keys.shape)
        folder = work / f"index-{len(keys)}"
        notes = folder / "figures.json"
        known = read_json(notes) if notes.exists() else {}
        if known.get("recipe") == recipe:
            index = FaissIndex.load(folder)
            self.figures: dict[str, Any] = known
        else:
            print(f"index of {len(keys):,} keys: {recipe}", file=sys.stderr, flush=True)
            index, self.figures = built(keys, recipe)
            index.save(folder)
            self.figures["bytes_per_key"] = (folder / index.file_name).stat().st_size / len(keys)
        assert isinstance(index, FaissIndex)
        self.index = index
        if index.needs_keys:
            index.lend_keys(keys)
        self.exact = self._exact(folder / "exact.npy", keys)
        self.recall = self._recall()
        self.figures |= {"nprobe": index.options["nprobe"], "refine_factor": index.options["refine_factor"]}
        self.figures["recall"] = self.recall
        write_json(notes, self.figures)

    def _exact(self, path: Path, keys: NDArray[Any]) -> Tensor:
        if not path.exists():
            np.save(path, exact_search(keys, self.queries, K, "l2").ids.numpy())
        return torch.from_numpy(np.load(path))

    def _recall(self) -> float:
        found = self.index.search(self.queries, K).ids
        return (self.exact.unsqueeze(2) == found.unsqueeze(1)).any(2).float().mean().item()

    def look_further(self, recall: float) -> None:
        """Take the cheapest search options that reach the recall; the widest, if none does."""
        if self.recall >= recall:
            return
        tried = []
        for nprobe, factor in itertools.product(PROBES, FACTORS):
            self._set(nprobe, factor)
            start = time.process_time()
            found = self._recall()
            tried.append((found >= recall, time.process_time() - start, nprobe, factor, found))
            if found >= recall and factor == FACTORS[0]:
                break  # more probes would only cost more
        reaching = [each for each in tried if each[0]]
        _, _, nprobe, factor, self.recall = min(reaching, key=lambda each: each[1]) if reaching else tried[-1]
        self._set(nprobe, factor)
        self.figures |= {"nprobe": nprobe, "refine_factor": factor, "recall": self.recall}

    def _set(self, nprobe: int, factor: int) -> None:
        self.index.options |= {"nprobe": nprobe, "refine_factor": factor}
        self.index._set_options()
        self.index._searcher = None

    def search(self, count: int) -> int:
        """Search all queries, so many at a time, several times; returns how many they were."""
        for part in REPEATS * torch.split(self.queries, count):
            self.index.search(part, K)
        return REPEATS * len(self.queries)


def built(keys: NDArray[Any], recipe: str) -> tuple[FaissIndex, dict[str, Any]]:
    """The index, and the seconds that training and adding took."""
    index = FaissIndex(keys.shape[1], "l2", recipe)
    start = time.perf_counter()
    index.train_on_sample(keys)
    middle = time.perf_counter()
    for first in range(0, len(keys), BLOCK):
        index.add(keys[first : first + BLOCK])
    end = time.perf_counter()
    return index, {"keys": len(keys), "recipe": recipe, "training": middle - start, "adding": end - middle}


def fit(figures: list[dict[str, Any]], cost: str) -> tuple[float, float]:
    """a and b of cost = a · keys^b, by least squares of the logarithms."""
    b, log_a = np.polyfit(np.log([each["keys"] for each in figures]), np.log([each[cost] for each in figures]), 1)
    return float(np.exp(log_a)), float(b)


def draw(figures: list[dict[str, Any]], fits: dict[str, tuple[float, float]], path: Path) -> None:
    """Points and fitted lines, both axes logarithmic: building on the left, searching on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    keys = np.array([each["keys"] for each in figures])
    for cost, name in COSTS.items():
        panel = right if cost.startswith("search") else left
        a, b = fits[cost]
        (line,) = panel.loglog(keys, a * keys**b, label=f"{name}: keys^{b:.2f}")
        panel.plot(keys, [each[cost] for each in figures], "o", color=line.get_color())
    for panel, title in ((left, "building the index"), (right, "searching it")):
        panel.set(title=title, xlabel="keys", ylabel="seconds")
        panel.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()

"""Which index for how many keys: the measurement behind `knn_seq.index.recipe`.

    python benchmarks/default_index.py --keys store/keys.h5
    python benchmarks/default_index.py --dimension 512 --sizes 30000 --recipes Flat "IVF{lists},SQ8"

{lists} in a recipe stands for the number of inverted lists that the default recipe takes for that size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.index import INDEXES, SearchIndex
from knn_seq.index.recipe import lists_for
from knn_seq.storage.keys import open_keys

RECIPES = (
    "Flat",
    "SQ8",
    "HNSW32,SQ8",
    "IVF{lists},Flat",
    "IVF{lists},SQ8",
    "IVF{lists},RaBitQfs,Refine(SQ8)",
    "IVF{lists},PQ{half}x4fs,Refine(SQ8)",
    "IVF{lists},RaBitQfs",
    "IVF{lists},PQ{half}x4fs",
    "IVF{lists},PQ64",
)
COLUMNS = ("keys", "recipe", "bytes/key", "train s", "add s", "5 queries ms", "160 queries ms", "recall@k")
QUERIES = 320


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare index recipes on keys of several sizes.")
    parser.add_argument("--keys", type=Path, help="a .npy file or a datastore's keys.h5; without: synthetic keys")
    parser.add_argument("--queries", type=Path, help="a .npy file of hidden states; without: keys that are held out")
    parser.add_argument("--dimension", type=int, default=256, help="of synthetic keys")
    parser.add_argument("--sizes", type=int, nargs="+", default=[30_000, 300_000])
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--nprobe", type=int, default=32)
    parser.add_argument("--refine", type=int, default=4)
    parser.add_argument("-k", type=int, default=64)
    args = parser.parse_args()
    everything = _load(args.keys) if args.keys else _synthetic(max(args.sizes) + QUERIES, args.dimension)
    order = np.random.default_rng(0).permutation(len(everything))
    queries = _load(args.queries) if args.queries else everything[np.sort(order[:QUERIES])]
    queries = queries[np.random.default_rng(1).permutation(len(queries))[:QUERIES]].astype(np.float32)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for size in args.sizes:
        keys = everything[np.sort(order[QUERIES:][:size])]
        exact = INDEXES.get("faiss").build(keys, "Flat").search(queries, args.k).ids
        for template in args.recipes:
            recipe = template.format(lists=lists_for(len(keys)), half=keys.shape[1] // 2)
            index, training, adding = _build(keys, recipe, nprobe=args.nprobe, refine_factor=args.refine)
            found = index.search(queries, args.k).ids
            cells = (
                f"{len(keys):,}",
                recipe,
                f"{index.memory / len(keys):.0f}",
                f"{training:.1f}",
                f"{adding:.1f}",
                f"{_milliseconds(lambda: index.search(queries[:5], args.k)):.2f}",  # noqa: B023
                f"{_milliseconds(lambda: index.search(queries[:160], args.k)):.1f}",  # noqa: B023
                f"{_recall(exact, found):.3f}",
            )
            print("| " + " | ".join(cells) + " |", flush=True)


def _build(keys: NDArray[Any], recipe: str, **options: int) -> tuple[SearchIndex, float, float]:
    """The index, and the seconds that training and adding took."""
    index = INDEXES.get("faiss")(keys.shape[1], "l2", recipe, **options)
    size = min(index.training_size(len(keys)), len(keys))
    start = time.perf_counter()
    if size:
        index.train(keys[np.random.default_rng(0).permutation(len(keys))[:size]])
    middle = time.perf_counter()
    index.add(keys)
    return index, middle - start, time.perf_counter() - middle


def _milliseconds(search: Callable[[], object], repetitions: int = 15, seconds: float = 3.0) -> float:
    """The fastest of several times: what the others took longer is somebody else's work."""
    search()
    times: list[float] = []
    while len(times) < repetitions and sum(times) < seconds:
        start = time.perf_counter()
        search()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def _recall(exact: torch.Tensor, found: torch.Tensor) -> float:
    """The share of the true neighbours that were found."""
    hits = (exact.unsqueeze(2) == found.unsqueeze(1)).any(dim=2)  # (queries, k)
    return hits.float().mean().item()


def _load(path: Path) -> NDArray[Any]:
    keys: NDArray[Any] = np.load(path, mmap_mode="r") if path.suffix == ".npy" else open_keys(path)
    return keys


def _synthetic(count: int, dimension: int) -> NDArray[np.float16]:
    """Clusters of clusters, with variances that fall off over the dimensions as those of hidden states do."""
    random = np.random.default_rng(0)
    scale = np.arange(1, dimension + 1, dtype=np.float32) ** -0.3
    coarse = 3 * random.standard_normal((200, dimension), dtype=np.float32)
    fine = coarse[random.integers(200, size=5000)] + 1.5 * random.standard_normal((5000, dimension), dtype=np.float32)
    keys = np.empty((count, dimension), np.float16)
    for start in range(0, count, 100_000):
        part = random.integers(5000, size=len(keys[start : start + 100_000]))
        noise = random.standard_normal((len(part), dimension), dtype=np.float32)
        keys[start : start + len(part)] = (fine[part] + noise) * scale
    return keys


if __name__ == "__main__":
    main()

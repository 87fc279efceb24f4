"""What it costs to build an index on this machine: a few constants, measured in seconds, and what follows from them.

Adding a key costs `encode` (transform and codes) and finding its list, which costs `compare` for every list if the key
is compared with all of them, or `step` for every doubling of their number if a graph finds it.  An index without lists
that is a graph itself costs `step` for every doubling of the keys.  Training compares the sample with all lists in each
iteration of k-means, and learns the codes from a bounded sample.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library.layers import inverted_lists, layers
from knn_seq.index.recipe import lists_of, training_size
from knn_seq.quantize.kmeans import ITERATIONS

FEW_LISTS, MANY_LISTS = 64, 2048
SAMPLE = 4096  # keys that the measurement trains on
CODE_SAMPLE = 65_536  # keys that codes are learned from, at the most
KEYS = 2048  # that the measurement adds at a time
ROUNDS = 3
WRITTEN = 64 << 20  # bytes


@dataclass(frozen=True)
class Costs:
    """Seconds, of one recipe and dimension on one machine."""

    learn: float = 0.0  # transforms and codes, from SAMPLE keys
    encode: float = 0.0  # a key
    compare: float = 0.0  # a key with a list
    step: float = 0.0  # a key in a graph, for every doubling of the graph
    write: float = 0.0  # a byte

    def training(self, recipe: str, entries: int) -> float:
        """Seconds to train the index."""
        if not self.learn:
            return 0.0
        sample = training_size(recipe, entries)
        iterations = ITERATIONS + 1  # finding the first centroids costs about as much as one
        return iterations * sample * lists_of(recipe) * self.compare + self.learn * min(sample, CODE_SAMPLE) / SAMPLE

    def adding(self, recipe: str, entries: int) -> float:
        """Seconds to add all keys."""
        lists = lists_of(recipe)
        if has_graph(recipe):
            return entries * (self.encode + self.step * math.log2(max(lists or entries, 2)))
        return entries * (self.encode + self.compare * lists)

    def writing(self, size: float) -> float:
        """Seconds to write so many bytes."""
        return size * self.write


def has_graph(recipe: str) -> bool:
    """Whether a graph finds the keys, or the lists."""
    return "HNSW" in recipe


def measure_costs(recipe: str, dimension: int, metric: str = "l2", folder: Path | None = None) -> Costs:
    """Measure for some seconds, on random keys.

    Args:
        recipe: Of a faiss index.
        dimension: Of a key.
        metric: "l2", "ip" or "cosine".
        folder: Where the datastore will be; None: the disk of temporary files is measured.
    """
    write = _seconds_to_write(folder)
    if not lists_of(recipe):
        index, learn, add = _measure(recipe, dimension, metric)
        if has_graph(recipe):
            return Costs(learn=learn, step=add / math.log2(len(index)), write=write)
        return Costs(learn=learn, encode=add, write=write)
    graph = re.search(r"IVF\d+[kM]?(_HNSW\d*)", recipe)
    flat = with_lists(recipe, FEW_LISTS).replace(graph[1], "", 1) if graph else with_lists(recipe, FEW_LISTS)
    small, learn, add = _measure(flat, dimension, metric)
    inner = inverted_lists(small.index)
    transformed = dimension if inner is None else int(inner.d)
    # As many lists as keys: the cheapest training there is.
    compare = _measure(f"IVF{MANY_LISTS},Flat", transformed, metric, MANY_LISTS)[2] / MANY_LISTS
    step = 0.0
    if graph:
        walk = _measure(f"IVF{MANY_LISTS}{graph[1]},Flat", transformed, metric, MANY_LISTS)[2]
        step = walk / math.log2(MANY_LISTS)
    learn -= (ITERATIONS + 1) * SAMPLE * FEW_LISTS * compare
    return Costs(max(learn, 1e-9), max(add - FEW_LISTS * compare, 0.0), compare, step, write)


def with_lists(recipe: str, lists: int) -> str:
    """The recipe with another number of inverted lists."""
    return re.sub(r"IVF\d+[kM]?", f"IVF{lists}", recipe)


def _measure(recipe: str, dimension: int, metric: str, sample: int = SAMPLE) -> tuple[FaissIndex, float, float]:
    """An index of that recipe with some keys, the seconds that training took, and those of adding a key."""
    keys = np.random.default_rng(0).standard_normal((SAMPLE, dimension), dtype=np.float32)
    index = FaissIndex(dimension, metric, recipe)
    for layer in layers(index.index):
        for part in (layer, getattr(layer, "pq", layer)):
            if hasattr(part, "cp"):
                part.cp.min_points_per_centroid = 1  # a poor index takes as long, and faiss need not warn of it
    trained = index.training_size(SAMPLE) > 0
    learn = _seconds(lambda: index.train(keys[:sample])) if trained else 0.0
    index.add(keys)  # the index finds out first what is fastest
    return index, learn, min(_seconds(lambda: index.add(keys[:KEYS])) for _ in range(ROUNDS)) / KEYS


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _seconds_to_write(folder: Path | None) -> float:
    """Seconds that a byte takes to be safe on the disk."""
    data = np.random.default_rng(0).bytes(WRITTEN)
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        return (time.perf_counter() - start) / WRITTEN

"""The constants of this machine, measured within seconds on random keys."""

from __future__ import annotations

import mmap
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import layers
from knn_seq.index.recipe import lists_of
from knn_seq.plan.cost.constants import Costs
from knn_seq.plan.cost.fit import SEARCHING, Observation, fit
from knn_seq.plan.cost.job import Job, Search

FEW_LISTS, MANY_LISTS = 64, 1024
SAMPLE = 8192  # keys that the measurement trains on
ENTRIES = 65_536  # keys that it adds at the most, and then searches ...
ADDING_SECONDS = 1.0  # ... unless they take longer
CHUNK = 4096
ROUNDS = 3
QUERIES, PROBES, FACTORS = (1, 32), (1, 8, 32), (1, 8)
WRITTEN = 64 << 20  # bytes
READS = 64


def measure_costs(recipe: str, dimension: int, metric: str = "l2", folder: Path | None = None) -> Costs:
    """Measure for some seconds what a recipe and a dimension need; what they do not need stays 0.

    Args:
        recipe: Of a faiss index.
        dimension: Of a key.
        metric: "l2", "ip" or "cosine".
        folder: Where the datastore will be; None: the disk of temporary files is measured.
    """
    write, fetch = _disk(folder)
    costs = Costs(write=write, fetch=fetch)
    graph = re.search(r"IVF\d+[kM]?(_HNSW\d*)", recipe)
    flat = with_lists(recipe.replace(graph[1], "", 1) if graph else recipe, FEW_LISTS)
    own = _Trial(flat, dimension, metric)
    searched = own.searches()
    if lists_of(recipe):
        many = _Trial(f"IVF{MANY_LISTS},Flat", own.job.transformed, metric)
        costs = fit([many.trained], ["cluster"], costs)
        costs = fit([many.only("multiply")], ["multiply"], costs)
        searched += many.searches()
        if graph:
            walk = _Trial(f"IVF{MANY_LISTS}{graph[1]},Flat", own.job.transformed, metric, MANY_LISTS)
            costs = fit([walk.only("step")], ["step"], costs)
            searched += walk.searches()
    elif own.job.graph:
        costs = fit([own.only("step")], ["step"], costs)
    if own.job.sample:
        # One time tells one constant: the rotation, if there is one, takes nearly all of it.
        costs = fit([own.trained], ["rotate" if own.job.rotated else "learn"], costs)
    costs = fit([own.added], ["encode"], costs)
    costs = fit(searched, SEARCHING, costs)
    return fit([own.merged(folder)], ["merge"], costs) if own.index.mergeable else costs


def with_lists(recipe: str, lists: int) -> str:
    """The recipe with another number of inverted lists."""
    return re.sub(r"IVF\d+[kM]?", f"IVF{lists}", recipe)


class _Trial:
    """A small index, and what building it took."""

    def __init__(self, recipe: str, dimension: int, metric: str, sample: int = SAMPLE) -> None:
        keys = np.random.default_rng(0).standard_normal((ENTRIES, dimension), dtype=np.float32).astype(np.float16)
        self.cores = int(faiss.omp_get_max_threads())
        self.recipe, self.metric, self.keys = recipe, metric, keys
        self.index = FaissIndex(dimension, metric, recipe)
        for layer in layers(self.index.index):
            for part in (layer, getattr(layer, "pq", layer)):
                if hasattr(part, "cp"):
                    part.cp.min_points_per_centroid = 1  # a poor index takes as long, and faiss need not warn of it
        if self.index.training_size(SAMPLE):
            seconds = _seconds(lambda: self.index.train(keys[:sample]))
            self.trained = Observation(self._job(SAMPLE, sample).training(), seconds, self.cores)
        self.index.add(keys[:CHUNK])  # the index finds out first what is fastest
        fastest, start_time = np.inf, time.perf_counter()
        for start in range(CHUNK, ENTRIES, CHUNK):
            chunk = keys[start : start + CHUNK]
            fastest = min(fastest, _seconds(partial(self.index.add, chunk)))
            if time.perf_counter() - start_time > ADDING_SECONDS:
                break
        self.job = self._job(len(self.index))
        seconds = float(fastest) / CHUNK * len(self.index)
        self.added = Observation(self.job.adding(), seconds, self.cores)

    def _job(self, entries: int, sample: int | None = None) -> Job:
        job = Job.of(entries, self.index.dimension, self.recipe, self.metric)
        return job if sample is None else replace(job, sample=sample)

    def only(self, name: str) -> Observation:
        """What adding took, as if it had been nothing but one thing."""
        return Observation({name: self.added.work[name]}, self.added.seconds, self.cores)

    def searches(self) -> list[Observation]:
        """What small and larger batches took, searched more and less thoroughly."""
        if self.index.needs_keys:
            self.index.attach_keys(self.keys[: len(self.index)])
        found = []
        for count, nprobe, factor in product(QUERIES, PROBES, FACTORS if self.index.needs_keys else (1,)):
            search = Search(count, nprobe=nprobe, refine_factor=factor)
            ask = partial(
                self.index.search,
                self.keys[-count:].astype(np.float32),
                search.k,
                {"nprobe": nprobe, "refine_factor": factor},
            )
            ask()
            seconds = min(_seconds(ask) for _ in range(ROUNDS))
            found.append(Observation(self.job.searching(search, self.cores), seconds))
        return found

    def merged(self, folder: Path | None) -> Observation:
        """What it takes to merge a part with all keys into the index, which is emptied for that."""
        entries = len(self.index)
        self.index.clear()
        part = self.index.part()
        part.add(self.keys[:entries])
        with tempfile.TemporaryDirectory(dir=folder) as place:
            part.save(Path(place))
            part.clear()
            seconds = _seconds(lambda: self.index.merge([Path(place)]))
        return Observation(self.job.merging(), seconds)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _disk(folder: Path | None) -> tuple[float, float]:
    """Seconds that a byte takes to be safe on the disk, and a few to come from there if they are not in memory."""
    data = np.random.default_rng(0).bytes(WRITTEN)
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        write = (time.perf_counter() - start) / WRITTEN
        return write, seconds_to_fetch(file.fileno(), WRITTEN)


def seconds_to_fetch(file: int, size: int) -> float:
    """Seconds that a few bytes of an open file of that size take to come from the disk into its map."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(file, size, access=mmap.ACCESS_READ) as mapped:
        places: NDArray[np.int64] = np.random.default_rng(0).integers(0, size, READS)
        return _seconds(lambda: [mapped[int(place)] for place in places]) / READS

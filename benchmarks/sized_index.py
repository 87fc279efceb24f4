"""Indexes of any number of keys, and what building and searching them costs."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import commit
from numpy.typing import NDArray
from speed_models import JITTER
from torch import Tensor

from knn_seq.index.budget import memory_budget
from knn_seq.index.exact import exact_search
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library.layers import inverted_lists, transforms
from knn_seq.index.recipe import default_recipe
from knn_seq.plan.cost.job import Job
from knn_seq.storage.atomic import read_json, write_json

K = 64
REPEATS = 10  # of all queries in a round
BLOCK = 1 << 16  # keys made at a time
NPROBE, NEAR_LISTS, MIN_NPROBE, PROBE_RATIO, MANY_LISTS = 32, 40, 8, 1.7, 1024  # the defaults of the index
PROBES = (20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 80, 96, 128, 192, 256)
FACTORS = (4, 5, 6, 7, 8, 9, 10, 12, 16, 24)
TRIES = 9  # at each of these, of which the fastest counts


def grown_keys(work: Path, real: NDArray[Any], entries: int) -> NDArray[Any]:
    """So many keys in a file, (entries, dimension) float16: the real ones shuffled, then jittered copies of them.

    The file grows block by block, so a run that was killed resumes, and one with more keys keeps those that are there.
    """
    path, dimension = work / f"keys-{len(real)}.f16", real.shape[1]
    order = np.random.default_rng(0).permutation(len(real))
    deviation = JITTER * float(real[np.sort(order[:10_000])].astype(np.float32).std())
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
            file.write((made + deviation * noise).half().numpy().tobytes())
            if block % 16 == 0:
                print(f"keys: {block * BLOCK:,} of {entries:,}", file=sys.stderr, flush=True)
    return np.memmap(path, np.float16, "r", shape=(blocks * BLOCK, dimension))[:entries]


class SizedIndex:
    """An index of so many keys, and what it costs; built once at each commit, then found again.

    Args:
        folder: Where it is saved.
        keys: (entries, dimension), the first rows of a file.
        queries: (n, dimension)
        recipe: None: the default.
    """

    def __init__(self, folder: Path, keys: NDArray[Any], queries: Tensor, recipe: str | None = None) -> None:
        assert isinstance(keys, np.memmap)
        assert keys.filename is not None
        self.queries, self.same_recall = queries, dict[str, Any]()
        recipe, notes = recipe or default_recipe(*keys.shape), folder / "figures.json"
        known = read_json(notes) if notes.exists() else {}
        if (known.get("recipe"), known.get("commit")) != (recipe, commit()):
            print(f"index of {len(keys):,} keys: {recipe}", file=sys.stderr, flush=True)
            # A process of its own: memory that was freed before would hide how much is taken.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as another:
                known = another.submit(built, Path(keys.filename), keys.shape, recipe, folder).result()
        self.figures: dict[str, Any] = known
        index = FaissIndex.load(folder)
        assert isinstance(index, FaissIndex)
        self.index = index
        if index.needs_keys:
            index.attach_keys(keys)
        self.exact = self._exact(folder / "exact.npy", keys)
        self.figures |= {"recall": self.recall(), "searches": []}
        write_json(notes, self.figures)

    def _exact(self, path: Path, keys: NDArray[Any]) -> Tensor:
        if not path.exists():
            np.save(path, exact_search(keys, self.queries, K, "l2").ids.numpy())
        return torch.from_numpy(np.load(path))

    def recall(self, options: Mapping[str, Any] | None = None) -> float:
        """The share of the true neighbours that are found."""
        found = self.index.search(self.queries, K, options).ids
        return (self.exact.unsqueeze(2) == found.unsqueeze(1)).any(2).float().mean().item()

    def look_for(self, recall: float) -> None:
        """Take the cheapest options that reach the recall as `same_recall`; the widest, if none does.

        What probes more lists than other options that reach it must get by with fewer candidates to be tried at all.
        """
        reaching: list[tuple[float, dict[str, Any]]] = []  # seconds and options
        most, options = math.inf, dict[str, Any]()
        for nprobe in PROBES:
            for factor in FACTORS:
                options = {"nprobe": nprobe, "probe_ratio": PROBE_RATIO, "refine_factor": factor}
                reached = self.recall(options) >= recall
                if factor >= most or reached:
                    break
            if factor < most and reached:
                most = factor
                reaching.append((min(self._processor_seconds(options) for _ in range(TRIES)), options))
        self.same_recall = min(reaching, default=(math.inf, options), key=lambda each: each[0])[1]
        lists, found = self.lists_probed(self.same_recall), self.recall(self.same_recall)
        self.figures["same_recall"] = {**self.same_recall, "lists": lists, "recall": found}

    def _processor_seconds(self, options: Mapping[str, Any]) -> float:
        start = time.process_time()
        self.index.search(self.queries, K, options)
        return time.process_time() - start

    def lists_probed(self, options: Mapping[str, Any]) -> float:
        """How many lists a query probes, on average."""
        ivf: Any = inverted_lists(self.index.index)
        if ivf is None:
            return 0
        ratio = options.get("probe_ratio")
        if ratio is None and ("nprobe" in options or ivf.nlist < MANY_LISTS):
            return float(min(options.get("nprobe", NPROBE), ivf.nlist))
        points = self.queries.numpy()
        for transform in transforms(self.index.index):
            points = transform.apply(points)
        nearest, _ = ivf.quantizer.search(points, min(options.get("nprobe", NEAR_LISTS), ivf.nlist))
        near = nearest <= (ratio or PROBE_RATIO) * nearest[:, :1]
        near[:, :MIN_NPROBE] = True
        return float(near.sum(1).mean())

    def search(self, count: int, options: Mapping[str, Any] | None = None, repeats: int = REPEATS) -> int:
        """Search all queries, so many at a time, several times; returns how many they were."""
        for part in repeats * torch.split(self.queries, count):
            self.index.search(part, K, options)
        return repeats * len(self.queries)

    def note_search(self, count: int, seconds: float, why: str, options: Mapping[str, Any]) -> None:
        """Keep what a query took in a batch of so many, searched with these options."""
        factor = options.get("refine_factor") or self.index.options["refine_factor"]
        used = {"nprobe": round(self.lists_probed(options)), "refine_factor": factor}
        self.figures["searches"].append({"queries": count, **used, "seconds": count * seconds, "why": why})


def built(path: Path, shape: tuple[int, int], recipe: str, folder: Path) -> dict[str, Any]:
    """Build an index in parts, as a build does, and save it; returns seconds and bytes of each step.

    Args:
        path: Keys in float16.
        shape: Entries and dimension.
        recipe: Of the index.
        folder: Where to save it.
    """
    keys: NDArray[Any] = np.memmap(path, np.float16, "r", shape=shape)
    entries, dimension = shape
    work = folder.with_suffix(".building")
    shutil.rmtree(work, ignore_errors=True)
    clock: dict[str, float] = dict.fromkeys(("training", "adding", "writing", "merging"), 0.0)

    @contextmanager
    def timed(step: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        clock[step] += time.perf_counter() - start

    with PeakMemory() as peak:
        index = FaissIndex(dimension, "l2", recipe)
        step = Job.of(entries, dimension, recipe).part(memory_budget(None))
        with timed("training"):
            index.train_on_sample(keys)
        parts = [work / f"part-{start}" for start in range(0, entries, step)] if step < entries else []
        for start in range(0, entries, step):
            part = index.part() if parts else index
            with timed("adding"):
                for first in range(start, min(start + step, entries), BLOCK):
                    last = min(first + BLOCK, start + step, entries)
                    part.add(keys[first:last], np.arange(first, last))
            if parts:
                with timed("writing"):
                    part.save(parts[start // step])
                part.clear()
        if parts:
            with timed("merging"):
                index.merge(parts)
        with timed("writing"):
            index.save(folder)
    size = (folder / index.file_name).stat().st_size
    written = size + sum((part / index.file_name).stat().st_size for part in parts)
    shutil.rmtree(work, ignore_errors=True)
    figures = {
        "commit": commit(),
        "keys": entries,
        "dimension": dimension,
        "recipe": recipe,
        **clock,
        "parts": len(parts),
    }
    return {**figures, "written": written, "bytes": size, "building_memory": peak.bytes}


class PeakMemory:
    """The most memory that this process took beyond what it had, without what is mapped from files (Linux)."""

    def __enter__(self) -> PeakMemory:
        self.bytes, self._before, self._end = 0, _own_bytes(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            self.bytes = max(self.bytes, _own_bytes() - self._before)


def _own_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return 0

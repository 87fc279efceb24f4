"""What an index of so many keys will be and cost, before anything is built."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knn_seq.errors import InvalidSetting
from knn_seq.index.budget import INDEX_SHARE, memory_budget
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library import faiss
from knn_seq.index.recipe import default_recipe
from knn_seq.plan.cost import Costs, Job, Search, measure_costs
from knn_seq.plan.cost.job import KEY_BYTES

ONE, MANY = 1, 160  # queries whose latency is told: of a greedy search, and of 32 sentences with 5 beams

MEASURED_RECALL: dict[str, dict[int, dict[int, float]]] = {
    "OPQ64_128,IVF,PQ64x4fs,Refine(keys)": {
        256: {30_000: 0.956, 100_000: 0.946, 300_000: 0.946, 1_120_476: 0.939},
        1536: {30_000: 0.983, 100_000: 0.971, 317_207: 0.954},
    },
}
"""Recall@64 of recipes, without the number of their lists, by the dimension of the keys and by their number.

By `benchmarks/indexes.py` on decoder states over held-out verses of a Bible, with the default search settings."""


@dataclass(frozen=True)
class Plan:
    """A datastore and its index before they are built; sizes in bytes, times in seconds, those not known None."""

    entries: int
    dimension: int
    metric: str
    key_dtype: str
    memory: int  # the budget
    workers: int
    recipe: str
    bytes_per_token: float  # of the index
    index_bytes: int  # on disk
    lists_on_disk: bool  # the index is larger than the budget, and its lists stay where they are
    fits: bool  # the index can be built within the budget
    keys_bytes: int
    values_bytes: int
    text_bytes: tuple[int, int]  # at least, at most
    parts_bytes: int  # of the index in parts, on disk until they are merged
    building_memory: int
    translating_memory: int  # of the index; the model comes on top
    keys_seconds: float | None
    training_seconds: float | None
    adding_seconds: float | None
    merging_seconds: float | None
    writing_seconds: float | None  # of the index, and its parts
    keys_in_memory: float  # share of the keys that the rest of the budget can hold while they are searched
    search_seconds: float | None  # of one query
    batch_seconds: float | None  # of `MANY` queries at once
    recall: float | None  # recall@64 that is to be expected
    recall_measured_up_to: int | None  # keys ...
    recall_measured_dimension: int | None  # ... of that dimension

    @property
    def disk_bytes(self) -> int:
        """On disk, without the texts."""
        return self.keys_bytes + self.values_bytes + self.index_bytes

    @property
    def peak_disk_bytes(self) -> int:
        """On disk at the most while it is built, with the texts."""
        return self.disk_bytes + self.text_bytes[1] + self.parts_bytes

    @property
    def index_seconds(self) -> float | None:
        """To build the index."""
        steps = (self.training_seconds, self.adding_seconds, self.merging_seconds, self.writing_seconds)
        return None if None in steps else sum(step for step in steps if step is not None)

    @property
    def recall_is_extrapolated(self) -> bool:
        """Whether no index of so many keys, or of keys of that dimension, was measured."""
        largest = self.recall_measured_up_to
        return largest is not None and (self.entries > largest or self.dimension != self.recall_measured_dimension)


def make_plan(
    entries: int,
    dimension: int,
    metric: str = "l2",
    memory: int | None = None,
    key_dtype: str = "float16",
    recipe: str | None = None,
    measure: bool = True,
    key_rate: float | None = None,
    folder: Path | None = None,
    workers: int = 1,
    costs: Costs | None = None,
    cores: int | None = None,
) -> Plan:
    """Plan a datastore.

    Args:
        entries: Keys, one for each target token.
        dimension: Of a key.
        metric: "l2", "ip" or "cosine".
        memory: Bytes that building may take and the index have; None: half of what is free here.
        key_dtype: Of the stored keys, "float16" or "float32".
        recipe: Of a faiss index; None: the default one for that size and budget.
        measure: Measure this machine for some seconds, to tell the time that building and searching take.
        key_rate: Keys a second that the model of one worker computes, if that was measured.
        folder: Where the datastore will be, to measure that disk.
        workers: Machines like this one that compute keys and add them to the index.
        costs: What was measured before; None: `measure` decides.
        cores: Of a worker, like those here; None: as many as there are here.
    """
    if entries < 1 or dimension < 1:
        raise InvalidSetting(f"A datastore has at least 1 key of dimension 1, not {entries} of dimension {dimension}.")
    if key_dtype not in KEY_BYTES:
        raise InvalidSetting(f"Keys cannot be stored as '{key_dtype}': choose from {', '.join(KEY_BYTES)}.")
    if workers < 1:
        raise InvalidSetting(f"A datastore is built by at least 1 worker, not {workers}.")
    budget = memory_budget(memory)
    allowed = int(INDEX_SHARE * budget)
    recipe = recipe or default_recipe(entries, dimension, metric, allowed)
    job = Job.of(entries, dimension, recipe, metric, key_dtype)
    on_disk = job.memory > allowed and FaissIndex(dimension, metric, recipe).can_stay_on_disk
    resident = job.fixed_memory if on_disk else job.memory
    lists_bytes = job.index_bytes if on_disk else 0
    cache = max(budget - resident, 0)  # lists come first: every query needs them
    lists_in_memory = min(cache / lists_bytes, 1.0) if on_disk else 1.0
    in_memory = min(max(cache - lists_bytes, 0) / job.keys_bytes, 1.0)
    costs = measure_costs(recipe, dimension, metric, folder) if measure and costs is None else costs
    cores = cores or int(faiss.omp_get_max_threads())
    parts_bytes = job.index_bytes if on_disk or job.part(budget) < entries else 0

    def searching(queries: int) -> float | None:
        search = Search(queries, in_memory=in_memory, lists_in_memory=lists_in_memory)
        return costs.searching(job, search, cores) if costs else None

    recall, measured_up_to, measured_dimension = expected_recall(recipe, entries, dimension)
    return Plan(
        entries=entries,
        dimension=dimension,
        metric=metric,
        key_dtype=key_dtype,
        memory=budget,
        workers=workers,
        recipe=recipe,
        bytes_per_token=job.bytes_per_entry,
        index_bytes=job.index_bytes,
        lists_on_disk=on_disk,
        fits=job.memory <= allowed or on_disk,
        keys_bytes=job.keys_bytes,
        values_bytes=job.values_bytes,
        text_bytes=job.text_bytes,
        parts_bytes=parts_bytes,
        building_memory=job.building_memory(budget, on_disk),
        translating_memory=resident,
        keys_seconds=_keys_seconds(job, key_rate, workers, costs),
        training_seconds=costs.training(job, cores) if costs else None,
        adding_seconds=costs.adding(job, cores, workers) if costs else None,
        merging_seconds=(costs.merging(job) if parts_bytes else 0.0) if costs else None,
        writing_seconds=costs.writing(job.index_bytes + parts_bytes) if costs else None,
        keys_in_memory=in_memory,
        search_seconds=searching(ONE),
        batch_seconds=searching(MANY),
        recall=recall,
        recall_measured_up_to=measured_up_to,
        recall_measured_dimension=measured_dimension,
    )


def expected_recall(recipe: str, entries: int, dimension: int) -> tuple[float | None, int | None, int | None]:
    """Recall@64, and of how many keys at most and which dimension it was measured; None: nothing is known.

    That of the measured dimension that is nearest by ratio.  Between two sizes and beyond the largest it goes along a
    line over the logarithm of the size.
    """
    if recipe == "Flat":
        return 1.0, None, None
    kind = re.sub(r"IVF\d+[kM]?(_HNSW\d*)?", "IVF", recipe)
    if kind not in MEASURED_RECALL:
        return None, None, None
    of_kind = MEASURED_RECALL[kind]
    nearest = min(of_kind, key=lambda each: abs(math.log(each / dimension)))
    measured = of_kind[nearest]
    sizes = sorted(measured)
    values = [measured[size] for size in sizes]
    recall = float(np.interp(math.log(entries), np.log(sizes), values))
    if entries > sizes[-1] and len(sizes) > 1:
        slope = (values[-1] - values[-2]) / math.log(sizes[-1] / sizes[-2])
        recall = values[-1] + slope * math.log(entries / sizes[-1])
    return min(max(recall, 0.0), 1.0), sizes[-1], nearest


def _keys_seconds(job: Job, rate: float | None, workers: int, costs: Costs | None) -> float | None:
    """Models compute keys while those before are written, to one disk."""
    if rate is None:
        return None
    return max(job.entries / rate / workers, costs.writing(job.keys_bytes) if costs else 0.0)

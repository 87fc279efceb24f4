"""What an index of so many keys will be and cost, before anything is built."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knn_seq.errors import UserError
from knn_seq.index.budget import INDEX_SHARE, memory_budget
from knn_seq.index.cost import Costs, measure_costs
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library.layers import layers, transforms
from knn_seq.index.recipe import default_recipe

KEY_BYTES = {"float16": 2, "float32": 4}
TOKEN_BYTES = 4
SENTENCE_TOKENS = 25  # about; each sentence has an offset of 8 bytes
TEXT_BYTES = (11, 15)  # a token, for texts and source tokens: 11.5 in a Bible, 15.1 in strings of software
WRITES = 2  # of an index: in parts, then merged

MEASURED_RECALL: dict[str, tuple[int, dict[int, float]]] = {
    "PCA128,IVF,PQ64x4fs,Refine(keys)": (256, {30_000: 0.957, 100_000: 0.950, 300_000: 0.949, 1_120_476: 0.940}),
    "PCA192,IVF,PQ96x4fs,Refine(keys)": (1536, {30_000: 0.981, 100_000: 0.965, 317_207: 0.951}),
}
"""Recall@64 of recipes, without the number of their lists: the dimension of the keys, and by their number.

By `benchmarks/indexes.py` on decoder states over held-out verses of a Bible, with the default search settings."""


@dataclass(frozen=True)
class Plan:
    """A datastore and its index before they are built; sizes in bytes, times in seconds, those not known None."""

    entries: int
    dimension: int
    metric: str
    key_dtype: str
    memory: int  # the budget
    recipe: str
    bytes_per_token: float  # of the index
    index_bytes: int  # on disk
    lists_on_disk: bool  # the index is larger than the budget, and its lists stay where they are
    fits: bool  # the index can be built within the budget
    keys_bytes: int
    values_bytes: int
    translating_memory: int  # of the index; the model comes on top
    keys_seconds: float | None
    training_seconds: float | None
    adding_seconds: float | None
    writing_seconds: float | None  # of the index
    recall: float | None  # recall@64 that is to be expected
    recall_measured_up_to: int | None  # keys ...
    recall_measured_dimension: int | None  # ... of that dimension

    @property
    def disk_bytes(self) -> int:
        """On disk, without the texts."""
        return self.keys_bytes + self.values_bytes + self.index_bytes

    @property
    def index_seconds(self) -> float | None:
        """To build the index."""
        if self.training_seconds is None or self.adding_seconds is None or self.writing_seconds is None:
            return None
        return self.training_seconds + self.adding_seconds + self.writing_seconds

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
) -> Plan:
    """Plan a datastore.

    Args:
        entries: Keys, one for each target token.
        dimension: Of a key.
        metric: "l2", "ip" or "cosine".
        memory: Bytes that building may take and the index have; None: half of what is free here.
        key_dtype: Of the stored keys, "float16" or "float32".
        recipe: Of a faiss index; None: the default one for that size and budget.
        measure: Measure this machine for some seconds, to tell the time that building takes.
        key_rate: Keys a second that the model computes, if that was measured.
        folder: Where the datastore will be, to measure that disk.
    """
    if entries < 1 or dimension < 1:
        raise UserError(f"A datastore has at least 1 key of dimension 1, not {entries} of dimension {dimension}.")
    if key_dtype not in KEY_BYTES:
        raise UserError(f"Keys cannot be stored as '{key_dtype}': choose from {', '.join(KEY_BYTES)}.")
    budget = memory_budget(memory)
    allowed = int(INDEX_SHARE * budget)
    recipe = recipe or default_recipe(entries, dimension, metric, allowed)
    index = FaissIndex(dimension, metric, recipe)
    fixed, full = index.expected_memory(0), index.expected_memory(entries)
    on_disk = full > allowed and index.can_stay_on_disk
    keys_bytes, per_token = entries * dimension * KEY_BYTES[key_dtype], (full - fixed) / entries
    index_bytes = round(per_token * entries) + _learned_bytes(index)
    costs = measure_costs(recipe, dimension, metric, folder) if measure else None
    recall, measured_up_to, measured_dimension = expected_recall(recipe, entries)
    return Plan(
        entries=entries,
        dimension=dimension,
        metric=metric,
        key_dtype=key_dtype,
        memory=budget,
        recipe=recipe,
        bytes_per_token=per_token,
        index_bytes=index_bytes,
        lists_on_disk=on_disk,
        fits=full <= allowed or on_disk,
        keys_bytes=keys_bytes,
        values_bytes=entries * TOKEN_BYTES + 8 * math.ceil(entries / SENTENCE_TOKENS),
        translating_memory=fixed if on_disk else full,
        keys_seconds=_keys_seconds(entries, keys_bytes, key_rate, costs),
        training_seconds=costs.training(recipe, entries) if costs else None,
        adding_seconds=costs.adding(recipe, entries) if costs else None,
        writing_seconds=costs.writing(WRITES * index_bytes) if costs else None,
        recall=recall,
        recall_measured_up_to=measured_up_to,
        recall_measured_dimension=measured_dimension,
    )


def expected_recall(recipe: str, entries: int) -> tuple[float | None, int | None, int | None]:
    """Recall@64, and of how many keys at most and which dimension it was measured; None: nothing is known.

    Between two sizes and beyond the largest it goes along a line over the logarithm of the size.
    """
    if recipe == "Flat":
        return 1.0, None, None
    kind = re.sub(r"IVF\d+[kM]?(_HNSW\d*)?", "IVF", recipe)
    if kind not in MEASURED_RECALL:
        return None, None, None
    dimension, measured = MEASURED_RECALL[kind]
    sizes = sorted(measured)
    values = [measured[size] for size in sizes]
    recall = float(np.interp(math.log(entries), np.log(sizes), values))
    if entries > sizes[-1] and len(sizes) > 1:
        slope = (values[-1] - values[-2]) / math.log(sizes[-1] / sizes[-2])
        recall = values[-1] + slope * math.log(entries / sizes[-1])
    return min(max(recall, 0.0), 1.0), sizes[-1], dimension


def _keys_seconds(entries: int, size: int, rate: float | None, costs: Costs | None) -> float | None:
    """The model computes keys while those before are written."""
    return None if rate is None else max(entries / rate, costs.writing(size) if costs else 0.0)


def _learned_bytes(index: FaissIndex) -> int:
    """Transforms, centroids of lists and codebooks."""
    numbers = sum(transform.d_in * transform.d_out for transform in transforms(index.index))
    for layer in layers(index.index):
        numbers += layer.nlist * layer.d if hasattr(layer, "nlist") else 0
        numbers += layer.pq.ksub * layer.d if hasattr(layer, "pq") else 0
    return int(4 * numbers)

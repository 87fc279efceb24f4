"""An index of some size as work to be done: how often each thing is done that takes time, and how many bytes it takes.

Nothing here is measured.  The names of the counts are those of the constants in `Costs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from knn_seq.index.base import CHUNK_BYTES, TRAINING_COPIES
from knn_seq.index.budget import WORKING_SHARE, part_entries
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import bytes_per_entry, inverted_lists, layers, transforms
from knn_seq.index.faiss_library.training import ROTATION_POINTS
from knn_seq.index.recipe import training_size
from knn_seq.quantize.kmeans import ITERATIONS, POINTS_PER_CLUSTER

Work = dict[str, float]
"""How often each thing is done, by the name of its constant in `Costs`."""

KEY_BYTES = {"float16": 2, "float32": 4}
TOKEN_BYTES = 4
SENTENCE_TOKENS = 25  # about; each sentence has an offset of 8 bytes
TEXT_BYTES = (11, 15)  # a token, for texts and source tokens: 11.5 in a Bible, 15.1 in strings of software
FLOAT_BYTES = 4
READ_AHEAD = 128 << 10  # bytes that come with one read from a disk
CHUNKS = 32  # of the keys that are converted at a time the budget could hold so many
CHUNK_COPIES = 3  # of them: as they came, in float32, transformed
ADAPTIVE_LISTS = 20  # that a query visits, about, with the default probe ratio
HALF_BLOCK = 16  # entries: a list of fast-scan codes ends in a block of 32 that is half full


@dataclass(frozen=True)
class Search:
    """A batch of queries, and how thoroughly it is searched; the defaults are those of a translation."""

    queries: int = 1
    k: int = 64
    nprobe: int | None = None  # inverted lists that a query visits; None: the index's own setting
    refine_factor: int | None = None  # times k candidates that are ranked by stored keys; None: the same
    in_memory: float = 1.0  # share of the stored keys that the disk's cache holds
    lists_in_memory: float = 1.0  # share of the lists that do not have to come from the disk


@dataclass(frozen=True)
class Job:
    """An index of so many keys."""

    entries: int
    dimension: int  # of a key
    transformed: int  # dimension of a key when it comes to the lists
    rotated: bool  # by a transform that is learned in rounds (OPQ)
    lists: int  # inverted lists; 0: none
    graph: bool  # it finds the lists or, without lists, the keys
    subspaces: int  # of product quantization; 0: none
    code_words: int  # of a subspace; 1: a number is coded by itself
    code_bytes: int  # of a key's code
    sample: int  # keys that it is trained on; 0: there is nothing to learn
    ranked: bool  # candidates are ranked by the stored keys
    fast_scan: bool  # codes are interleaved when all are there
    bytes_per_entry: float  # of the index
    fixed_memory: int  # bytes that it takes in memory without entries
    learned_bytes: int  # transforms, centroids and codebooks in the file
    mergeable: bool  # it is built in parts
    nprobe: int  # inverted lists that a query visits, if nothing else is said
    refine_factor: int  # times k candidates that are ranked, the same
    key_bytes: int = 2  # of a number of a stored key

    @classmethod
    def of(cls, entries: int, dimension: int, recipe: str, metric: str = "l2", key_dtype: str = "float16") -> Job:
        """The job of building an index by a recipe of faiss."""
        index = FaissIndex(dimension, metric, recipe)
        ivf, parts = inverted_lists(index.index), list(layers(index.index))
        inner = parts[0] if ivf is None else ivf
        quantizer = next((layer.pq for layer in parts if hasattr(layer, "pq")), None)
        fixed, search = index.expected_memory(0), index.resolved()
        return cls(
            entries=entries,
            dimension=dimension,
            transformed=int(parts[-1].d if ivf is None else ivf.d),
            rotated=any(isinstance(each, faiss.OPQMatrix) for each in transforms(index.index)),
            lists=0 if ivf is None else int(ivf.nlist),
            graph="HNSW" in recipe,
            subspaces=0 if quantizer is None else int(quantizer.M),
            code_words=1 if quantizer is None else int(quantizer.ksub),
            code_bytes=int(getattr(inner, "code_size", FLOAT_BYTES * dimension)),
            sample=index.training_size(entries) and min(training_size(recipe, entries), entries),
            ranked=index.needs_keys,
            fast_scan=isinstance(inner, faiss.IndexIVFFastScan),
            bytes_per_entry=(index.expected_memory(entries) - fixed) / entries,
            fixed_memory=fixed,
            learned_bytes=_learned_bytes(index),
            mergeable=index.mergeable,
            nprobe=search.nprobe if search.probe_ratio is None else min(ADAPTIVE_LISTS, search.nprobe),
            refine_factor=search.refine_factor,
            key_bytes=KEY_BYTES[key_dtype],
        )

    def training(self) -> Work:
        """k-means of the sample, whose seeding costs about an iteration; rotation and codes of fewer keys."""
        coded = min(self.sample, POINTS_PER_CLUSTER * self.code_words)
        return {
            "rotate": min(self.sample, ROTATION_POINTS) * self._transform() if self.rotated else 0,
            "cluster": (ITERATIONS + 1) * self.sample * self.lists * self.transformed,
            "learn": coded * self.code_words * self.transformed,
            "multiply": self.sample * self._transform(),
            "step": self._walk(self.lists) * self.lists if self.sample else 0,
        }

    def adding(self) -> Work:
        """Each key is transformed, compared with all lists, or led to one by a graph, and coded."""
        compared = 0 if self.graph else self.lists * self.transformed
        walked = self._walk(self.lists or self.entries)
        coded = 0 if self.graph and not self.lists else self.dimension + self.code_words * self.transformed
        return {
            "multiply": self.entries * (self._transform() + compared),
            "step": self.entries * walked,
            "encode": self.entries * coded,
        }

    def merging(self) -> Work:
        """Parts are read again, put together and, if they are for fast-scan, interleaved."""
        return {"merge": self.entries * self.bytes_per_entry}

    def searching(self, search: Search, cores: int) -> Work:
        """A batch: queries are dealt out to the cores; the counts are those of a core with the most of them.

        Codes and centroids come from memory once for all queries that need them, and are then compared with each.
        """
        queries = math.ceil(search.queries / cores)
        lists = min(search.nprobe or self.nprobe, self.lists)
        share = lists / self.lists if self.lists else 0 if self.graph else 1
        visited = 1 - (1 - share) ** queries  # share of the lists that at least one of the queries visits
        codes = self.entries * self.code_bytes
        candidates = min(search.k * (search.refine_factor or self.refine_factor), self.entries) if self.ranked else 0
        compared = 0 if self.graph else self.lists * self.transformed
        reads = lists * math.ceil(codes / max(self.lists, 1) / READ_AHEAD) * (1 - search.lists_in_memory)
        return {
            "call": 1,
            "load": visited * codes + FLOAT_BYTES * compared,
            "compare": queries * (self._transform() + compared),
            "walk": queries * self._walk(self.lists or self.entries),
            "visit": queries * lists * max(self.subspaces * self.code_words, 1),
            "scan": queries * share * codes,
            "rank": queries * candidates * self.dimension,
            "locate": queries * candidates * math.log2(max(self.entries, 2)),
            "fetch": queries * (candidates * (1 - search.in_memory) + reads),
        }

    @property
    def keys_bytes(self) -> int:
        """Of the stored keys."""
        return self.entries * self.dimension * self.key_bytes

    @property
    def values_bytes(self) -> int:
        """Of the target tokens, and where each sentence begins."""
        return self.entries * TOKEN_BYTES + 8 * math.ceil(self.entries / SENTENCE_TOKENS)

    @property
    def text_bytes(self) -> tuple[int, int]:
        """Of texts and source tokens: at least, and at most."""
        return self.entries * TEXT_BYTES[0], self.entries * TEXT_BYTES[1]

    @property
    def index_bytes(self) -> int:
        """Of the index on the disk."""
        padding = self.lists * HALF_BLOCK * self.code_bytes if self.fast_scan else 0
        return (
            round(self.entries * self.bytes_per_entry)
            + min(padding, self.entries * self.code_bytes)
            + self.learned_bytes
        )

    @property
    def memory(self) -> int:
        """Of the index when it is searched in memory."""
        return self.fixed_memory + round(self.entries * self.bytes_per_entry)

    @property
    def training_memory(self) -> int:
        """Of the sample while the index is trained, if nobody allows less."""
        return TRAINING_COPIES * FLOAT_BYTES * self.dimension * self.sample

    def part(self, budget: int) -> int:
        """Entries of a part while the index is built; all, if it is not built in parts."""
        per_entry = self.memory / self.entries
        return min(part_entries(self.entries, per_entry, budget), self.entries) if self.mergeable else self.entries

    def building_memory(self, budget: int, on_disk: bool = False) -> int:
        """At the most: of training, of a part that is filled, or of the complete index when the parts are merged.

        Args:
            budget: Bytes; sample and parts are made smaller for it.
            on_disk: Whether the lists are merged on the disk.
        """
        filled = self.part(budget) if on_disk else self.entries
        training = min(self.training_memory, round(WORKING_SHARE * budget))
        chunk = min(CHUNK_BYTES, budget // CHUNKS, FLOAT_BYTES * self.dimension * self.entries)
        return max(training, self.fixed_memory + round(self.bytes_per_entry * filled) + CHUNK_COPIES * chunk)

    def _transform(self) -> int:
        return self.dimension * self.transformed if self.transformed != self.dimension else 0

    def _walk(self, nodes: int) -> float:
        return self.transformed * math.log2(max(nodes, 2)) if self.graph else 0


def _learned_bytes(index: FaissIndex) -> int:
    numbers = 0.0
    for transform in transforms(index.index):
        numbers += transform.d_in * transform.d_out
        numbers += transform.d_in**2 if isinstance(transform, faiss.PCAMatrix) else 0  # all directions are kept
    for layer in layers(index.index):
        numbers += layer.pq.ksub * layer.d if hasattr(layer, "pq") else 0
        if hasattr(layer, "nlist"):
            inner = faiss.downcast_index(layer.quantizer)
            edges = bytes_per_entry(inner) / FLOAT_BYTES if isinstance(inner, faiss.IndexHNSW) else 0
            numbers += layer.nlist * (layer.d + edges)
    return int(FLOAT_BYTES * numbers)

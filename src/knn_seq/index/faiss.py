"""faiss: an index of any kind from a factory string."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import UserError
from knn_seq.index.base import INDEXES, SearchIndex
from knn_seq.index.blas import choose_kernels
from knn_seq.index.recipe import default_recipe, training_size

choose_kernels()
faiss: Any = import_module("faiss")  # only now: its BLAS library reads the choice while it is loaded

# faiss computes distances to all vectors of a flat index or quantizer one by one below so many numbers in the queries,
# and with a matrix product above.  The product wins from a few queries of dimension 512 on; faiss's own threshold
# stands at 250 of them.
faiss.cvar.distance_compute_blas_threshold = 5 * 512

MAPPED_BYTES = 1 << 30  # larger files stay on disk and are mapped into memory; such an index is for searching only
# Small clusterings are thousands of loops of a millisecond.  Threads gain little there, and on busy cores they wait for
# each other in every loop.  Counted in points times centroids.
SMALL_TRAINING = 100_000_000
SPARE = 8  # candidates beyond k in an exact search
WRAPPED = ("index", "base_index", "refine_index", "quantizer", "storage")  # where faiss keeps an index in another


@INDEXES.register("faiss")
class FaissIndex(SearchIndex):
    """An index that faiss's `index_factory` makes.

    Args:
        dimension: Of keys and queries.
        metric: "l2", "ip" or "cosine".
        recipe: A factory string such as "IVF1024,PQ64"; None: "Flat".
        **options: nprobe, the inverted lists that a query visits; ef_search, the candidates that a walk over an HNSW
            graph keeps; refine_factor, how many times k candidates a refinement looks at.
    """

    default_options = {"nprobe": 32, "ef_search": 128, "refine_factor": 4}  # noqa: RUF012
    file_name = "index.faiss"

    def __init__(self, dimension: int, metric: str = "l2", recipe: str | None = None, **options: Any) -> None:
        super().__init__(dimension, metric, recipe or "Flat", **options)
        for name, value in self.options.items():
            if not isinstance(value, int) or value < 1:
                raise UserError(f"The index's option {name} must be a number from 1 on, not {value}.")
        # Vectors of length one have the same order by l2 as by cosine, and l2 is what every recipe can do.
        kind = faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2
        try:
            self.index = faiss.index_factory(dimension, self.recipe, kind)
        except RuntimeError as error:
            raise self._bad_recipe(_reason(error)) from error
        if any(layer.nlist < 1 for layer in _layers(self.index) if isinstance(layer, faiss.IndexIVF)):
            raise self._bad_recipe("no lists")
        if metric == "ip" and self._centres():
            raise UserError(f"PCA in '{self.recipe}' moves the origin, so inner products are lost: use l2 or cosine.")
        for layer in _layers(self.index):
            if hasattr(layer, "do_polysemous_training"):
                # It sorts the centroids for a way of searching that nobody asked for, in most of the time.
                layer.do_polysemous_training = False
        self._mapped = False
        self._set_options()

    @classmethod
    def recipe_for(cls, entries: int, dimension: int) -> str:
        """The default recipe for so many keys."""
        return default_recipe(entries, dimension)

    def training_size(self, entries: int) -> int:
        """The size of the recipe's sample."""
        return 0 if self.index.is_trained else training_size(str(self.recipe), entries)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @property
    def memory(self) -> int:
        """Codes, ids, graph edges and centroids."""
        return sum(_bytes(layer) for layer in _layers(self.index))

    def _train(self, sample: Tensor) -> None:
        if self.index.is_trained:
            return
        clusterings = [clustering for layer in _layers(self.index) for clustering in _clusterings(layer)]
        least = max((centroids for _, centroids in clusterings), default=1)
        if len(sample) < least:
            raise UserError(
                f"The recipe '{self.recipe}' needs at least {least:,} keys to be trained, and there are "
                f"{len(sample):,}: choose a simpler one, such as 'Flat'."
            )
        work = sum(times * min(len(sample), 256 * centroids) * centroids for times, centroids in clusterings)
        try:
            with _one_thread() if work < SMALL_TRAINING else nullcontext():
                self.index.train(_array(sample))
        except RuntimeError as error:
            raise UserError(
                f"faiss cannot train the recipe '{self.recipe}' on {len(sample):,} keys ({_reason(error)}): "
                "choose a simpler one, such as 'Flat'."
            ) from error

    def _add(self, keys: Tensor, ids: Tensor) -> None:
        if self._mapped:
            raise UserError("An index that is mapped from disk cannot grow: build it again.")
        if not self.index.is_trained:
            raise UserError(f"The recipe '{self.recipe}' has to be trained before keys are added.")
        numbered_on = torch.equal(ids, torch.arange(len(self), len(self) + len(ids)))
        if numbered_on and not any(isinstance(layer, faiss.IndexIDMap) for layer in _layers(self.index)):
            self.index.add(_array(keys))
            return
        try:
            self.index.add_with_ids(_array(keys), ids.numpy())
        except RuntimeError as error:
            raise UserError(
                f"The recipe '{self.recipe}' numbers its entries itself: use 'IDMap2,{self.recipe}' to give them ids."
            ) from error

    def _search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        rows = _array(queries)
        if isinstance(self.index, faiss.IndexFlat) and self.metric != "ip":
            numbers, labels = self._exact(rows, k)
        else:
            numbers, labels = self.index.search(rows, k)
        distances, ids = torch.from_numpy(numbers), torch.from_numpy(labels)
        if self.metric == "ip":
            return -distances, ids
        return (distances / 2 if self.metric == "cosine" else distances), ids

    def _exact(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Distances as sums of squared differences: out of a matrix product they lack the last digits.

        A few more than k are looked at, since the order is not quite right either; equally near ones come by id.
        """
        _, labels = self.index.search(queries, min(k + SPARE, len(self)))
        numbers = np.empty(labels.shape, np.float32)
        self.index.compute_distance_subset(
            len(queries), faiss.swig_ptr(queries), labels.shape[1], faiss.swig_ptr(numbers), faiss.swig_ptr(labels)
        )
        order = np.lexsort((labels, numbers))[:, :k]
        return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(labels, order, axis=1)

    def _save(self, path: Path) -> None:
        with path.open("wb") as file:  # faiss's own files do not tell when the disk is full at the very end
            faiss.write_index(self.index, faiss.PyCallbackIOWriter(file.write))

    def _load(self, path: Path) -> None:
        self._mapped = path.stat().st_size >= MAPPED_BYTES
        mapping = getattr(faiss, "IO_FLAG_MMAP_IFC", faiss.IO_FLAG_MMAP)  # faiss before 1.11 maps inverted lists only
        try:
            self.index = faiss.read_index(str(path), mapping if self._mapped else 0)
        except (RuntimeError, MemoryError) as error:
            raise UserError(f"faiss cannot read {path} ({_reason(error)}): build the index again.") from error
        if self.index.d != self.dimension:
            raise UserError(f"{path} is of dimension {self.index.d}, not {self.dimension}: build the index again.")
        self._set_options()

    def _set_options(self) -> None:
        for layer in _layers(self.index):
            if isinstance(layer, faiss.IndexIVF):
                layer.nprobe = min(self.options["nprobe"], layer.nlist)
            elif isinstance(layer, faiss.IndexHNSW):
                layer.hnsw.efSearch = self.options["ef_search"]
            elif isinstance(layer, faiss.IndexRefine):
                layer.k_factor = self.options["refine_factor"]

    def _bad_recipe(self, reason: str) -> UserError:
        return UserError(
            f"faiss makes no index of dimension {self.dimension} from the recipe '{self.recipe}' ({reason}): "
            "give a factory string such as 'Flat' or 'IVF1024,PQ64'."
        )

    def _centres(self) -> bool:
        transforms = (
            faiss.downcast_VectorTransform(layer.chain.at(i))
            for layer in _layers(self.index)
            if isinstance(layer, faiss.IndexPreTransform)
            for i in range(layer.chain.size())
        )
        return any(isinstance(transform, faiss.PCAMatrix) for transform in transforms)


def _layers(index: Any) -> Iterator[Any]:
    """The index and all those it is made of."""
    layer = faiss.downcast_index(index)
    yield layer
    for name in WRAPPED:
        inner = getattr(layer, name, None)
        if inner is not None:
            yield from _layers(inner)


def _bytes(layer: Any) -> int:
    if isinstance(layer, faiss.IndexIVF):
        tables = layer.precomputed_table.size() * 4 if isinstance(layer, faiss.IndexIVFPQ) else 0
        return int(layer.ntotal * (layer.code_size + 8) + tables)
    if isinstance(layer, faiss.IndexHNSW):
        return int(layer.hnsw.neighbors.size() * 4 + layer.ntotal * 8)
    if isinstance(layer, faiss.IndexIDMap):
        return int(layer.ntotal * 8)
    return int(layer.codes.size()) if hasattr(layer, "codes") else 0


def _clusterings(layer: Any) -> Iterator[tuple[int, int]]:
    """How many times training clusters keys, and into how many centroids."""
    if isinstance(layer, faiss.IndexIVF):
        yield 1, layer.nlist
    if hasattr(layer, "pq"):
        yield layer.pq.M, layer.pq.ksub


@contextmanager
def _one_thread() -> Iterator[None]:
    """No parallel loops in this thread; others keep theirs, since OpenMP counts for each of them."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _array(vectors: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors.cpu().numpy())


def _reason(error: BaseException) -> str:
    return str(error).rpartition(": ")[2].strip().rstrip(".")

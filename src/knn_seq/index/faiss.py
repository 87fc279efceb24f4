"""faiss: an index of any kind from a factory string."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError
from knn_seq.index.base import INDEXES, SearchIndex
from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.adding import TorchAdder
from knn_seq.index.faiss_library.disk import (
    LISTS_NAME,
    can_stay_on_disk,
    merge_on_disk,
    read_with_lists,
    require_complete_lists,
)
from knn_seq.index.faiss_library.fast_scan import fast_scan_lists, merge_unpacked_parts, unpacked_copy
from knn_seq.index.faiss_library.layers import bytes_in, drop_tables, expected_bytes, inverted_lists, layers, transforms
from knn_seq.index.faiss_library.live_entries import LiveEntries
from knn_seq.index.faiss_library.parallel import FaissResult
from knn_seq.index.faiss_library.search_options import SearchOptions, set_defaults
from knn_seq.index.faiss_library.searcher import Searcher
from knn_seq.index.faiss_library.stored_keys import KeyRanker, ranked_by_cosine
from knn_seq.index.faiss_library.training import least_sample, train
from knn_seq.index.recipe import MANY_LISTS, REFINE_KEYS, default_recipe, training_size
from knn_seq.registry import Option
from knn_seq.runtime.memory import MemoryNeed, available_memory, lack_of_memory
from knn_seq.storage.atomic import disk_errors

SPARE_SHARE = 0.25  # of free memory: a file that is smaller can be read
MAPPED_BYTES = 1 << 30  # larger files stay on disk and are mapped into memory; such an index is for searching only
DEFAULT_NPROBE = 32
# Of many lists: at most 40, those up to 1.7 times as far as the nearest.  These are some 20, and find as much as 32.
ADAPTIVE_NPROBE, DEFAULT_PROBE_RATIO = 40, 1.7
REFINE_FACTOR = 5
WIDE_DIMENSION, WIDE_REFINE_FACTOR = 256, 3  # beyond it reading a key to rank it costs more than another candidate
EXTRA_CANDIDATES = 8  # beyond k in an exact search
ADDING_EF_SEARCH = 32  # in a graph of lists: enough for the one list of a key, and far faster than a search's


@INDEXES.register("faiss")
class FaissIndex(SearchIndex):
    """An index that faiss's `index_factory` makes.

    Args:
        dimension: Of keys and queries.
        metric: "l2", "ip" or "cosine".
        recipe: A factory string such as "IVF1024,PQ64"; None: "Flat".  One that ends in ",Refine(keys)" ranks what it
            finds by the stored keys, which have to be attached to it (`attach_keys`).
        **options: Those of `declared_options`.
    """

    declared_options = {
        "nprobe": Option(None, "inverted lists that a query visits (default 32; of many lists 40 at most)", int, 1),
        "probe_ratio": Option(
            None,
            "visit lists up to so many times as far as the nearest one, in squared distances, and at most nprobe of "
            "them (default 1.7 of many lists if nprobe is not given either, else however far)",
            float,
            1,
        ),
        "ef_search": Option(128, "candidates that a walk over an HNSW graph keeps", int, 1),
        "refine_factor": Option(None, "times k candidates that a refinement ranks (default 5, of wide keys 3)", int, 1),
        "device": Option(
            None, "where torch trains and encodes (default CUDA if there is, else the CPU)", str, when_built=True
        ),
    }
    file_name = "index.faiss"

    def __init__(self, dimension: int, metric: str = "l2", recipe: str | None = None, **options: Any) -> None:
        super().__init__(dimension, metric, recipe or "Flat", **options)
        if self.options["refine_factor"] is None:
            self.options["refine_factor"] = REFINE_FACTOR if dimension <= WIDE_DIMENSION else WIDE_REFINE_FACTOR
        # Vectors of length one have the same order by l2 as by cosine, and l2 is what every recipe can do.
        kind = faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2
        try:
            self.index = faiss.index_factory(dimension, str(self.recipe).removesuffix(REFINE_KEYS), kind)
        except RuntimeError as error:
            raise self._bad_recipe(_reason(error)) from error
        if any(layer.nlist < 1 for layer in layers(self.index) if isinstance(layer, faiss.IndexIVF)):
            raise self._bad_recipe("no lists")
        if metric == "ip" and any(isinstance(transform, faiss.PCAMatrix) for transform in transforms(self.index)):
            raise InvalidSetting(
                f"PCA in '{self.recipe}' moves the origin, so inner products are lost: use l2 or cosine."
            )
        self._mapped = False
        self._keys: NDArray[Any] | None = None
        self._packed: Any = None  # a part of fast-scan lists uses what these have learned
        self._adder: TorchAdder | None = None
        self._adder_chosen = False
        self._opened: Searcher | None = None
        self._live: LiveEntries | None = None  # those of the last search that was told which are deleted
        self._ranker: KeyRanker
        set_defaults(self.index, self.resolved())

    @classmethod
    def recipe_for(cls, entries: int, dimension: int, metric: str = "l2", memory: int | None = None) -> str:
        """The default recipe for so many keys."""
        return default_recipe(entries, dimension, metric, memory)

    def training_size(self, entries: int) -> int:
        """The size of the recipe's sample."""
        return 0 if self.index.is_trained else training_size(str(self.recipe), entries)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @property
    def memory(self) -> int:
        """Codes, ids, graph edges and centroids; not the attached keys, nor lists on the disk."""
        return sum(bytes_in(layer) for layer in layers(self.index))

    def expected_memory(self, entries: int) -> int:
        """How many bytes the index takes with so many entries, about."""
        return expected_bytes(self.index, entries)

    def resolved(self, options: Mapping[str, Any] | None = None) -> SearchOptions:
        """How a search with these options, one value for each, is done; None: with the index's own."""
        given = self.options if options is None else options
        ivf, nprobe, probe_ratio = inverted_lists(self.index), given["nprobe"], given["probe_ratio"]
        if self.metric == "ip" or ivf is None:
            probe_ratio = None
        elif probe_ratio is None and nprobe is None and ivf.nlist >= MANY_LISTS:  # few and short ones are soon scanned
            probe_ratio = DEFAULT_PROBE_RATIO
        default = DEFAULT_NPROBE if probe_ratio is None else ADAPTIVE_NPROBE
        return SearchOptions(nprobe or default, probe_ratio, given["ef_search"], given["refine_factor"])

    @property
    def needs_keys(self) -> bool:
        """Whether it ranks by the stored keys."""
        return str(self.recipe).endswith(REFINE_KEYS)

    def attach_keys(self, keys: NDArray[Any]) -> None:
        """Rank by these keys, (entries, dimension), where they lie; the id of an entry is its row."""
        if keys.shape[1] != self.dimension:
            raise InvalidSetting(f"The keys are of dimension {keys.shape[1]}, and the index of {self.dimension}.")
        self._keys, self._opened = keys, None

    @property
    def mergeable(self) -> bool:
        """Whether parts of it can be built one by one."""
        return can_stay_on_disk(self.index) or fast_scan_lists(self.index) is not None

    @property
    def skips_deleted(self) -> bool:
        """Whether it has inverted lists, or is exact, and is not on GPUs: faiss leaves out what it is told there."""
        known = inverted_lists(self.index) is not None or isinstance(self.index, faiss.IndexFlat)
        return known and self._searcher().gpu is None

    @property
    def growable(self) -> bool:
        """Whether it has inverted lists in memory, or is exact and has no ids but the places of its entries."""
        return not self._mapped and (inverted_lists(self.index) is not None or isinstance(self.index, faiss.IndexFlat))

    @property
    def can_stay_on_disk(self) -> bool:
        """Whether its lists may lie on the disk."""
        return can_stay_on_disk(self.index)

    def clear(self) -> None:
        """Delete all entries, and nothing that was learned."""
        self.index.reset()
        drop_tables(self.index)
        if self._adder is not None:
            self._adder.clear()
        self._opened = None

    def part(self) -> FaissIndex:
        """See `SearchIndex.part`; fast-scan codes are plain in a part."""
        if fast_scan_lists(self.index) is None:
            return self
        part = FaissIndex(self.dimension, self.metric, self.recipe, **self.options)
        part.index, part._packed = unpacked_copy(self.index), self.index
        return part

    def merge(self, parts: Sequence[Path]) -> None:
        """See `SearchIndex.merge`."""
        ivf = inverted_lists(self.index)
        if ivf is None or not self.mergeable:
            raise KnnSeqError(f"The recipe '{self.recipe}' cannot be merged out of parts.")
        if fast_scan_lists(self.index) is not None:
            merge_unpacked_parts(self.index, [path / self.file_name for path in parts])
        else:
            for path in parts:
                part = FaissIndex.load(path, writable=True)
                assert isinstance(part, FaissIndex)
                ivf.merge_from(inverted_lists(part.index), 0)
            faiss.downcast_index(self.index).ntotal = ivf.ntotal
        self._adder = self._opened = None

    def merge_on_disk(self, parts: Sequence[Path], folder: Path) -> None:
        """Merge saved parts into lists that lie in a file of that folder, and save the index there."""
        folder.mkdir(parents=True, exist_ok=True)
        self.clear()
        with disk_errors(folder):
            merge_on_disk(self.index, [part / self.file_name for part in parts], folder / LISTS_NAME)
        self._mapped = True
        self.save(folder)

    def _train(self, sample: Tensor) -> None:
        if self.index.is_trained:
            return
        least = least_sample(self.index)
        if len(sample) < least:
            raise InvalidSetting(
                f"The recipe '{self.recipe}' needs at least {least:,} keys to be trained, and there are "
                f"{len(sample):,}: choose a simpler one, such as 'Flat'."
            )
        try:
            train(self.index, sample, self.options["device"])
        except RuntimeError as error:
            raise KnnSeqError(
                f"faiss cannot train the recipe '{self.recipe}' on {len(sample):,} keys ({_reason(error)}): "
                "choose a simpler one, such as 'Flat'."
            ) from error

    def _add(self, keys: Tensor, ids: Tensor) -> None:
        if self._mapped:
            raise KnnSeqError("An index that is mapped from disk cannot grow: build it again.")
        if not self.index.is_trained:
            raise KnnSeqError(f"The recipe '{self.recipe}' has to be trained before keys are added.")
        self._opened = None
        set_defaults(self.index, self.resolved()._replace(ef_search=ADDING_EF_SEARCH))
        if not self._adder_chosen:
            may_compare = self._packed is None
            self._adder = TorchAdder.for_index(self.index, self.options["device"], keys, may_compare)
            self._adder_chosen = True
        if self._adder is not None:
            self._adder.add(keys, ids)
            return
        numbered_on = torch.equal(ids, torch.arange(len(self), len(self) + len(ids)))
        if numbered_on and not any(isinstance(layer, faiss.IndexIDMap) for layer in layers(self.index)):
            self.index.add(_array(keys))
            return
        try:
            self.index.add_with_ids(_array(keys), ids.numpy())
        except RuntimeError as error:
            raise KnnSeqError(
                f"The recipe '{self.recipe}' numbers its entries itself: use 'IDMap2,{self.recipe}' to give them ids."
            ) from error

    def _search(self, queries: Tensor, k: int, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        return self._nearest(queries, k, options)

    def _search_without(
        self, queries: Tensor, k: int, options: Mapping[str, Any], deleted: NDArray[np.bool_]
    ) -> tuple[Tensor, Tensor]:
        live = self._live
        if live is None or live.deleted is not deleted:
            live = self._live = LiveEntries(deleted)
        return self._nearest(queries, k, options, live)

    def _nearest(
        self, queries: Tensor, k: int, options: Mapping[str, Any], live: LiveEntries | None = None
    ) -> tuple[Tensor, Tensor]:
        self._finish_adding()
        rows, searcher = _array(queries), self._searcher()
        chosen = searcher.defaults if options is self.options else self.resolved(options)
        if isinstance(self.index, faiss.IndexFlat) and self.metric != "ip":
            numbers, labels = self._exact(searcher, rows, k, live)
        elif self.needs_keys:
            numbers, labels = self._ranked(searcher, rows, k, chosen, live)
        else:
            numbers, labels = searcher.search(rows, k, chosen, live)
        distances, ids = torch.from_numpy(numbers), torch.from_numpy(labels)
        if self.metric == "ip":
            return -distances, ids
        return (distances / 2 if self.metric == "cosine" else distances), ids

    def _finish_adding(self) -> None:
        if self._adder is not None:
            self._adder.finish()

    def _searcher(self) -> Searcher:
        if self._opened is None:
            if self.needs_keys and self.metric != "cosine":
                self._ranker = KeyRanker(self._attached_keys(), self.metric == "ip")
            self._opened = Searcher(self.index, self.resolved())
        return self._opened

    def _ranked(
        self,
        searcher: Searcher,
        queries: NDArray[np.float32],
        k: int,
        options: SearchOptions,
        live: LiveEntries | None,
    ) -> FaissResult:
        candidates = min(k * options.refine_factor, len(self))
        if self.metric == "cosine":
            found = searcher.search(queries, candidates, options, live)[1]
            return ranked_by_cosine(self._attached_keys(), queries, found, k)
        ranker = self._ranker
        return searcher.search_and_rank(
            queries, candidates, options, lambda rows, found: ranker.rank(queries[rows], found, k), k, live
        )

    def _attached_keys(self) -> NDArray[Any]:
        if self._keys is None:
            raise KnnSeqError(f"The recipe '{self.recipe}' ranks by stored keys: attach them to the index first.")
        return self._keys

    def _exact(self, searcher: Searcher, queries: NDArray[np.float32], k: int, live: LiveEntries | None) -> FaissResult:
        """Distances as sums of squared differences: out of a matrix product they lack the last digits.

        A few more than k are looked at, since the order is not quite right either; equally near ones come by id.
        """
        _, labels = searcher.search(queries, min(k + EXTRA_CANDIDATES, len(self)), searcher.defaults, live)
        numbers = np.empty(labels.shape, np.float32)
        self.index.compute_distance_subset(
            len(queries), faiss.swig_ptr(queries), labels.shape[1], faiss.swig_ptr(numbers), faiss.swig_ptr(labels)
        )
        order = np.lexsort((labels, numbers))[:, :k]
        return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(labels, order, axis=1)

    def _remove(self, ids: Tensor) -> None:
        if self._mapped:
            raise KnnSeqError("An index that is mapped from disk cannot shrink: build it again without these entries.")
        inner, named = faiss.downcast_index(self.index), False
        while isinstance(inner, (faiss.IndexPreTransform, faiss.IndexIDMap)):
            named |= isinstance(inner, faiss.IndexIDMap)
            inner = faiss.downcast_index(inner.index)
        what = f"The recipe '{self.recipe}' cannot remove entries"
        if isinstance(inner, faiss.IndexIVF):
            if named:  # faiss would mix up the ids of the others
                raise KnnSeqError(f"{what}: leave out 'IDMap', inverted lists keep ids by themselves.")
        elif not isinstance(inner, (faiss.IndexFlatCodes, faiss.IndexFastScan)):
            raise KnnSeqError(f"{what}: build the index again without them.")
        elif not named:
            raise KnnSeqError(f"{what} without changing the ids of others: use 'IDMap2,{self.recipe}'.")
        self._finish_adding()
        self.index.remove_ids(ids.numpy())
        self._adder = self._opened = None

    def _save(self, path: Path) -> None:
        self._finish_adding()
        with path.open("wb") as file:  # faiss's own files do not tell when the disk is full at the very end
            faiss.write_index(self.index, faiss.PyCallbackIOWriter(file.write))

    def _memory_to_load(self, path: Path) -> MemoryNeed:
        lists = path.with_name(LISTS_NAME)
        size, apart = path.stat().st_size, lists.stat().st_size if lists.exists() else 0
        mapped = size >= MAPPED_BYTES and not self.writable and self._may_be_mapped
        return MemoryNeed(0, size) if mapped else MemoryNeed(size, apart)

    def _load(self, path: Path) -> None:
        lists_apart = path.with_name(LISTS_NAME).exists()
        self._mapped = lists_apart or (path.stat().st_size >= MAPPED_BYTES and not self.writable)
        try:
            self.index = read_with_lists(path) if lists_apart else self._read(path)
        except (RuntimeError, MemoryError) as error:
            if lack_of_memory(error) and path.stat().st_size > SPARE_SHARE * available_memory():
                raise
            # No cause: out of a damaged file faiss may read that it needs more memory than any machine has.
            raise DamagedFile(f"faiss cannot read {path} ({_reason(error)}): build the index again.") from None
        if self.index.d != self.dimension:
            raise DamagedFile(f"{path} is of dimension {self.index.d}, not {self.dimension}: build the index again.")
        require_complete_lists(self.index, path)
        set_defaults(self.index, self.resolved())

    def _read(self, path: Path) -> Any:
        flags = faiss.IO_FLAG_MMAP_IFC if self._mapped and self._may_be_mapped else 0
        return faiss.read_index(str(path), flags | (faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE if self.writable else 0))

    @property
    def _may_be_mapped(self) -> bool:
        # faiss copies the lists of fast-scan codes out of a map: with it, opening takes twice the time and memory.
        return not any(isinstance(layer, faiss.IndexIVFFastScan) for layer in layers(self.index))

    def _bad_recipe(self, reason: str) -> InvalidSetting:
        return InvalidSetting(
            f"faiss makes no index of dimension {self.dimension} from the recipe '{self.recipe}' ({reason}): "
            "give a factory string such as 'Flat' or 'IVF1024,PQ64'."
        )


def _array(vectors: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors.cpu().numpy())


def _reason(error: BaseException) -> str:
    return str(error).rpartition(": ")[2].strip().rstrip(".")

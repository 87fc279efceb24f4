"""usearch: a graph of neighbours (HNSW)."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knn_seq.errors import DamagedFile, InvalidSetting, MissingLibrary
from knn_seq.index.base import INDEXES, SearchIndex
from knn_seq.registry import Option

NUMBER_TYPES = ("f32", "f16", "bf16", "i8")
USEARCH_METRICS = {"l2": "l2sq", "ip": "ip", "cosine": "cos"}
LARGEST_HALF = float(torch.finfo(torch.float16).max)


@INDEXES.register("usearch")
class UsearchIndex(SearchIndex):
    """The HNSW graph of the library usearch, the optional extra `usearch` of this package.

    Args:
        dimension: Of keys and queries.
        metric: "l2", "ip" or "cosine".
        recipe: "HNSW32,f16" or the like: the edges of a node, and how numbers are stored (f32, f16, bf16, or i8 for the
            cosine); None: just that.
        **options: Those of `declared_options`.
    """

    declared_options = {
        "ef_search": Option(128, "candidates that a search keeps", int, 1),
        "expansion_add": Option(128, "candidates that are kept while a key is added", int, 1, when_built=True),
    }
    file_name = "index.usearch"

    def __init__(self, dimension: int, metric: str = "l2", recipe: str | None = None, **options: Any) -> None:
        super().__init__(dimension, metric, recipe or "HNSW32,f16", **options)
        parts = re.fullmatch(rf"HNSW(\d{{1,4}})(?:,({'|'.join(NUMBER_TYPES)}))?", str(self.recipe))
        if parts is None or int(parts[1]) < 2:
            raise InvalidSetting(
                f"usearch makes no index from the recipe '{self.recipe}': give 'HNSW', a number of edges from 2 on "
                f"and, after a comma, one of {', '.join(NUMBER_TYPES)}, such as 'HNSW32,f16'."
            )
        self._edges, self._kind = int(parts[1]), parts[2] or "f16"
        if self._kind == "i8" and metric != "cosine":
            raise InvalidSetting(f"usearch keeps only directions in i8, not '{metric}': choose cosine, or f16.")
        self.index = self._new()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def memory(self) -> int:
        """Graph and keys, those of removed entries too."""
        return int(self.index.serialized_length)

    def _train(self, sample: Tensor) -> None:
        pass

    def _add(self, keys: Tensor, ids: Tensor) -> None:
        if self._kind == "f16" and float(keys.abs().max()) > LARGEST_HALF:
            raise InvalidSetting("A key has too large values for f16: choose a recipe with f32 or bf16, or scale them.")
        numbers = ids.numpy()
        # usearch adds those before the first duplicate, and only then refuses.
        if len(np.unique(numbers)) < len(numbers) or self.index.contains(numbers).any():
            raise InvalidSetting(
                "An id is given twice, or the index has it already: give every entry an id of its own."
            )
        self.index.add(numbers, _array(keys), threads=torch.get_num_threads())

    def _remove(self, ids: Tensor) -> None:
        self.index.remove(ids.numpy())

    def _search(self, queries: Tensor, k: int, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        rows = _array(queries)
        with self._lock:  # usearch takes the option from the index alone
            self.index.expansion_search = options["ef_search"]
            found = self.index.search(rows, k, threads=torch.get_num_threads())
        distances, ids = np.full((len(rows), k), np.inf, np.float32), np.full((len(rows), k), -1)
        if len(rows) == 1:  # usearch gives one query's result no rows, and only what was found
            distances[0, : len(found)], ids[0, : len(found)] = found.distances, found.keys
        else:
            there = np.arange(k) < found.counts[:, None]
            distances[there], ids[there] = found.distances[there], found.keys[there]
        if self.metric == "ip":
            distances -= 1  # usearch has 1 minus the inner product
        return torch.from_numpy(distances), torch.from_numpy(ids)

    def _save(self, path: Path) -> None:
        try:
            self.index.save(str(path))
        except RuntimeError:
            if not path.exists():
                raise
        # usearch does not tell why it failed, and nothing at all if only the end could not be written.
        if path.stat().st_size != self.index.serialized_length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _load(self, path: Path) -> None:
        try:
            facts = _library().Index.metadata(str(path))
            fits = (facts["kind_scalar"], facts["dimensions"]) == (self.index.dtype, self.dimension)
            if fits:  # usearch would take any file's kind and dimension for its own
                self.index = self._new()
                self.index.load(str(path))
        except (RuntimeError, ValueError, TypeError) as error:
            raise DamagedFile(f"usearch cannot read {path} ({error}): build the index again.") from error
        if not fits:
            raise DamagedFile(f"{path} is not of '{self.recipe}' and dimension {self.dimension}: build it again.")

    def _new(self) -> Any:
        return _library().Index(
            ndim=self.dimension,
            metric=USEARCH_METRICS[self.metric],
            dtype=self._kind,
            connectivity=self._edges,
            expansion_add=self.options["expansion_add"],
            expansion_search=self.options["ef_search"],
        )


def _library() -> Any:
    try:
        return import_module("usearch.index")
    except ImportError as error:
        raise MissingLibrary("The library usearch is missing: pip install knn-seq[usearch].") from error


def _array(vectors: Tensor) -> Any:
    return np.ascontiguousarray(vectors.cpu().numpy())

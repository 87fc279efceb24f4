"""The entries of an index that a search may find, as faiss is told."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library import faiss


class LiveEntries:
    """Those that are not deleted: faiss looks at a bit of each candidate before it keeps it.

    Args:
        deleted: Whether the entry of each id is, (entries,).
    """

    def __init__(self, deleted: NDArray[np.bool_]) -> None:
        self.deleted = deleted
        self.selector = faiss.IDSelectorBitmap(np.packbits(~deleted, bitorder="little"))
        self._parameters: dict[int, Any] = {}

    def parameters(self, nprobe: int) -> Any:
        """faiss's parameters of a search of so many lists."""
        if nprobe not in self._parameters:
            self._parameters[nprobe] = faiss.SearchParametersIVF(nprobe=nprobe, sel=self.selector)
        return self._parameters[nprobe]


def list_parameters(nprobe: int, live: LiveEntries | None) -> Any:
    """faiss's parameters of a search of so many lists; making them takes as long as a tenth of a small search."""
    return _parameters(nprobe) if live is None else live.parameters(nprobe)


@lru_cache(maxsize=64)
def _parameters(nprobe: int) -> Any:
    return faiss.SearchParametersIVF(nprobe=nprobe)

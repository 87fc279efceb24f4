"""Search on GPUs, where a build of faiss for them is installed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import inverted_lists
from knn_seq.index.faiss_library.parallel import FaissResult


class GpuIndex:
    """An index divided among all GPUs.

    Args:
        index: faiss's copy on the GPUs.
        lists: Inverted lists that it has; 0: none.
    """

    def __init__(self, index: Any, lists: int) -> None:
        self.index, self.lists = index, lists
        self._lock = threading.Lock()

    @classmethod
    def of(cls, index: Any) -> GpuIndex | None:
        """The copy of an index, or None where there are no GPUs or they cannot do its kind."""
        if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
            return None
        options = faiss.GpuMultipleClonerOptions()
        options.shard, options.useFloat16 = True, True
        try:
            copy = faiss.index_cpu_to_all_gpus(index, options)
        except RuntimeError:  # fast-scan codes and graphs live on the CPU only
            return None
        ivf = inverted_lists(index)
        return cls(copy, 0 if ivf is None else ivf.nlist)

    def search(self, queries: NDArray[np.float32], k: int, nprobe: int) -> FaissResult:
        """Distances and ids, (n, k); what is divided among GPUs takes no search parameters: it is locked and set."""
        with self._lock:
            if self.lists:
                faiss.GpuParameterSpace().set_index_parameter(self.index, "nprobe", min(nprobe, self.lists))
            found: FaissResult = self.index.search(queries, k)
        return found

"""Keys put into the inverted lists of faiss by torch: list numbers and codes are computed on any device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.assignment import (
    TRIAL_KEYS,
    TRIAL_WORK,
    centroids_of,
    device_for,
    fastest,
    product_dtypes,
)
from knn_seq.index.faiss_library.fast_scan import pack_lists, unpacked_lists
from knn_seq.index.faiss_library.layers import inverted_lists, transforms
from knn_seq.index.faiss_library.training import apply_transform
from knn_seq.quantize import ProductQuantizer, nearest_centroids


class TorchAdder:
    """Adds keys to a trained IVF index of faiss, behind linear transforms or none.

    Args:
        index: The index.
        device: Where torch computes.
        dtype: Of the products that assign keys to lists.
        encodes: Whether torch computes PQ codes too.
    """

    def __init__(self, index: Any, device: torch.device, dtype: torch.dtype, encodes: bool) -> None:
        self.index, self.device, self.dtype = index, device, dtype
        self.ivf: Any = faiss.downcast_index(faiss.extract_index_ivf(index))
        self.transforms = transforms(index)
        self.centroids = centroids_of(self.ivf).to(device)
        self.quantizer = _codebooks(self.ivf, device) if encodes and _encodable(self.ivf) else None
        # The codes of fast-scan are interleaved; faiss makes them out of plain codes only when it has all of these.
        self.unpacked = unpacked_lists(self.ivf) if isinstance(self.ivf, faiss.IndexIVFPQFastScan) else None
        self.packed = True

    @classmethod
    def for_index(
        cls, index: Any, device: str | None, some_keys: Tensor, may_compare: bool = True
    ) -> TorchAdder | None:
        """One for the index, or None if faiss is faster, or has to do it itself.

        Args:
            index: An index of any kind, trained.
            device: Where torch computes; None: CUDA if there is, else the CPU.
            some_keys: (n, dimension), the first of many; if there is only the CPU, faiss and torch are timed on them.
            may_compare: False: on a CPU faiss does it, so that keys get the same codes wherever they are added.
        """
        ivf, place = inverted_lists(index), device_for(device)
        if ivf is None or ivf.ntotal or not all(isinstance(each, faiss.LinearTransform) for each in transforms(index)):
            return None
        dtypes, fast_scan = product_dtypes(place), isinstance(ivf, faiss.IndexIVFFastScan)
        if place.type != "cpu":
            return cls(index, place, dtypes[0], True) if _encodable(ivf) or not fast_scan else None
        if fast_scan or not may_compare or len(some_keys) * ivf.nlist * ivf.d < TRIAL_WORK:
            return None
        trial, ids = some_keys[:TRIAL_KEYS].cpu(), torch.arange(len(some_keys[:TRIAL_KEYS]))
        scratch = faiss.clone_index(index)
        methods: dict[tuple[torch.dtype, bool] | None, Callable[[], object]] = {
            None: partial(scratch.add_with_ids, np.ascontiguousarray(trial.numpy()), ids.numpy())
        }
        methods |= {
            (dtype, encodes): partial(cls(scratch, place, dtype, encodes).add, trial, ids)
            for dtype in dtypes
            for encodes in ((False, True) if _encodable(ivf) else (False,))
        }
        best = fastest(methods)
        return None if best is None else cls(index, place, *best)

    def add(self, keys: Tensor, ids: Tensor) -> None:
        """Add keys, (n, dimension), under their ids, (n,) int64 on the CPU."""
        points = keys.to(self.device)
        for transform in self.transforms:
            points = apply_transform(transform, points)
        inner_product = self.ivf.metric_type == faiss.METRIC_INNER_PRODUCT
        lists = nearest_centroids(points, self.centroids, inner_product, self.dtype).centroids
        target = self.ivf if self.unpacked is None else self.unpacked
        self._add_to(target, points, lists, ids)
        self.packed = self.unpacked is None
        faiss.downcast_index(self.index).ntotal = self.ivf.ntotal = target.ntotal

    def finish(self) -> None:
        """Make what was added searchable."""
        if not self.packed:
            pack_lists(self.ivf, self.unpacked)
            self.packed = True

    def clear(self) -> None:
        """Drop what was added."""
        if self.unpacked is not None:
            self.unpacked.reset()

    def _add_to(self, ivf: Any, points: Tensor, lists: Tensor, ids: Tensor) -> None:
        if self.quantizer is not None:
            residuals = points - self.centroids[lists] if ivf.by_residual else points
            codes = packed_codes(self.quantizer.encode(residuals), ivf.pq.nbits)
            rows = torch.cat([_little_endian(lists, ivf.coarse_code_size()), codes], 1)
            ivf.add_sa_codes(np.ascontiguousarray(rows.cpu().numpy()), ids.numpy())
            return
        vectors, numbers = np.ascontiguousarray(points.cpu().numpy()), lists.cpu().numpy()
        pointers = (faiss.swig_ptr(array) for array in (vectors, ids.numpy(), numbers))
        ivf.add_core(len(vectors), *pointers)


def _encodable(ivf: Any) -> bool:
    """Whether torch can compute the codes."""
    return hasattr(ivf, "pq") and ivf.pq.nbits in (4, 8)


def _codebooks(ivf: Any, device: torch.device) -> ProductQuantizer:
    centroids = torch.from_numpy(faiss.vector_to_array(ivf.pq.centroids))
    return ProductQuantizer(centroids.view(ivf.pq.M, ivf.pq.ksub, ivf.pq.dsub).to(device))


def packed_codes(codes: Tensor, bits: int) -> Tensor:
    """Codes, (n, subspaces), as faiss lays them out: two 4-bit ones share a byte, the first in its lower half."""
    if bits == 8:
        return codes
    if codes.shape[1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def _little_endian(numbers: Tensor, size: int) -> Tensor:
    """Numbers, (n,), as bytes, (n, size)."""
    shifts = 8 * torch.arange(size, device=numbers.device)
    return ((numbers[:, None] >> shifts) & 255).to(torch.uint8)

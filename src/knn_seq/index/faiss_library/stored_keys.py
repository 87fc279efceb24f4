"""The datastore's keys as an index of faiss, where they lie: on the disk, mapped into memory, and not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.index.faiss_library import faiss


def view_of(keys: NDArray[Any], inner_product: bool) -> Any:
    """An index of faiss whose vectors are the keys, (entries, dimension); they must outlive it."""
    kind = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    if keys.dtype == np.float16:
        view = faiss.IndexScalarQuantizer(keys.shape[1], faiss.ScalarQuantizer.QT_fp16, kind)
    else:
        view = faiss.IndexFlat(keys.shape[1], kind)
    return mapped(view, keys)


def mapped(index: Any, codes: NDArray[Any]) -> Any:
    """An empty index of faiss filled with codes, (entries, ...), where they lie; they must outlive it."""
    nobody = faiss.MaybeOwnedVectorUInt8().owner  # faiss is not to free what belongs to the file
    address = faiss.cast_integer_to_uint8_ptr(codes.ctypes.data)
    index.codes = faiss.MaybeOwnedVectorUInt8.create_view(address, codes.nbytes, nobody)
    index.ntotal, index.is_trained = len(codes), True
    return index


def ranked_by_cosine(
    keys: NDArray[Any], queries: NDArray[np.float32], candidates: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Twice the cosine distance and the number of the k nearest candidates, (queries, k).

    The stored keys, (entries, dimension), are not of length one, so faiss cannot rank by them as they lie there.
    """
    rows = torch.from_numpy(keys[candidates.clip(min=0)].astype(np.float32))  # (queries, candidates, dimension)
    near = torch.nn.functional.normalize(rows, dim=2) @ torch.from_numpy(queries)[:, :, None]
    numbers = (2 - 2 * near[:, :, 0]).clamp_(min=0).numpy()
    numbers[candidates < 0] = np.inf
    order = np.argsort(numbers, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(candidates, order, axis=1)

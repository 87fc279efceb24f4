"""The datastore's keys as an index of faiss, where they lie: on the disk, mapped into memory, and not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.index.faiss_library import faiss


def view_of(keys: NDArray[Any], inner_product: bool) -> Any:
    """An index of faiss whose vectors are the keys, (entries, dimension); they must outlive it."""
    kind = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    if keys.dtype == np.float16:
        view = faiss.IndexScalarQuantizer(keys.shape[1], faiss.ScalarQuantizer.QT_fp16, kind)
    else:
        view = faiss.IndexFlat(keys.shape[1], kind)
    nobody = faiss.MaybeOwnedVectorUInt8().owner  # faiss is not to free what belongs to the file
    address = faiss.cast_integer_to_uint8_ptr(keys.ctypes.data)
    view.codes = faiss.MaybeOwnedVectorUInt8.create_view(address, keys.nbytes, nobody)
    view.ntotal, view.is_trained = len(keys), True
    return view

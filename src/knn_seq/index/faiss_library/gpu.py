"""Search on GPUs, where a build of faiss for them is installed."""

from __future__ import annotations

from typing import Any

from knn_seq.index.faiss_library import faiss


def on_gpus(index: Any) -> Any:
    """The index spread over all GPUs, a shard each; as it is, where there are none or they cannot do its kind."""
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard, options.useFloat16 = True, True
    try:
        return faiss.index_cpu_to_all_gpus(index, options)
    except RuntimeError:  # fast-scan codes and graphs live on the CPU only
        return index

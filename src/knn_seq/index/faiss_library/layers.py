"""An index of faiss is made of others: what lies in it, and how much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knn_seq.index.faiss_library import faiss

WRAPPED = ("index", "base_index", "refine_index", "quantizer", "storage")  # where faiss keeps an index in another


def layers(index: Any) -> Iterator[Any]:
    """The index and all those it is made of."""
    layer = faiss.downcast_index(index)
    yield layer
    for name in WRAPPED:
        inner = getattr(layer, name, None)
        if inner is not None:
            yield from layers(inner)


def transforms(index: Any) -> list[Any]:
    """What happens to a vector before it comes to the innermost index."""
    return [
        faiss.downcast_VectorTransform(layer.chain.at(i))
        for layer in layers(index)
        if isinstance(layer, faiss.IndexPreTransform)
        for i in range(layer.chain.size())
    ]


def inverted_lists(index: Any) -> Any | None:
    """The IVF index behind nothing but transforms, or None: the kind that is merged, and filled from outside."""
    inner = faiss.downcast_index(index)
    while isinstance(inner, faiss.IndexPreTransform):
        inner = faiss.downcast_index(inner.index)
    return inner if isinstance(inner, faiss.IndexIVF) else None


def on_disk(layer: Any) -> bool:
    """Whether the lists of an IVF index lie on the disk."""
    return isinstance(faiss.downcast_InvertedLists(layer.invlists), faiss.OnDiskInvertedLists)


def bytes_in(layer: Any) -> int:
    """The bytes that a layer itself takes in memory, about."""
    if isinstance(layer, faiss.IndexIVF):
        return int((0 if on_disk(layer) else layer.ntotal * bytes_per_entry(layer)) + table_bytes(layer))
    if isinstance(layer, faiss.IndexHNSW):
        return int(layer.hnsw.neighbors.size() * 4 + layer.ntotal * 8)
    if isinstance(layer, faiss.IndexIDMap):
        return int(layer.ntotal * 8)
    return int(layer.codes.size()) if hasattr(layer, "codes") else 0


def bytes_per_entry(layer: Any) -> float:
    """The bytes that one entry more takes in a layer."""
    if isinstance(layer, faiss.IndexIVF):
        return float(layer.code_size + 8)
    if isinstance(layer, faiss.IndexHNSW):
        return float(8 * layer.hnsw.nb_neighbors(1) * 1.05 + 8)  # twice the edges at level 0, and few above
    if isinstance(layer, faiss.IndexIDMap):
        return 8.0
    return float(layer.code_size) if hasattr(layer, "codes") else 0.0


def expected_bytes(index: Any, entries: int) -> int:
    """The bytes that an index will take with so many entries: its lists, codes and graph, and the lists' centroids."""
    total = 0.0
    within = [layer for layer in layers(index) if isinstance(layer, faiss.IndexIVF)]
    of_quantizers = [inner for layer in within for inner in layers(layer.quantizer)]
    for layer in layers(index):
        quantizing = any(layer.this == inner.this for inner in of_quantizers)
        total += bytes_per_entry(layer) * (within[0].nlist if quantizing else entries)
        total += table_bytes(layer)
    return int(total)


def table_bytes(layer: Any) -> int:
    """The bytes of the distances that a search by l2 has ready, unless they are too many."""
    if not isinstance(layer, faiss.IndexIVFPQ) or layer.metric_type != faiss.METRIC_L2 or not layer.by_residual:
        return 0
    table = 4 * layer.nlist * layer.pq.M * layer.pq.ksub
    return table if table <= faiss.cvar.precomputed_table_max_bytes else 0


def drop_tables(index: Any) -> None:
    """Free the distances that a search would have ready: an index that is filled has no use for them."""
    for layer in layers(index):
        if isinstance(layer, faiss.IndexIVFPQ) and layer.precomputed_table.size():
            layer.use_precomputed_table = -1
            layer.precompute_table()
            layer.use_precomputed_table = 0


def make_tables(index: Any) -> None:
    """Compute them again where they are missing."""
    for layer in layers(index):
        if table_bytes(layer) and not layer.precomputed_table.size():
            layer.precompute_table()

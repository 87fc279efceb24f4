"""Search options of a faiss index: its defaults, and for one search faiss's own `SearchParameters`."""

from __future__ import annotations

from typing import Any, NamedTuple

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import layers
from knn_seq.index.faiss_library.live_entries import LiveEntries


class SearchOptions(NamedTuple):
    """How thoroughly an index is searched, with nothing left open."""

    nprobe: int  # inverted lists that a query visits; with a probe ratio at most
    probe_ratio: float | None  # visit lists up to so many times as far as the nearest one; None: however far
    ef_search: int  # candidates that a walk over an HNSW graph keeps
    refine_factor: int  # times k candidates that a refinement ranks


def set_defaults(index: Any, options: SearchOptions) -> None:
    """Let a search without parameters use these options."""
    for layer in layers(index):
        if isinstance(layer, faiss.IndexIVF):
            layer.nprobe = min(options.nprobe, layer.nlist)
        elif isinstance(layer, faiss.IndexHNSW):
            layer.hnsw.efSearch = options.ef_search
        elif isinstance(layer, faiss.IndexRefine):
            layer.k_factor = options.refine_factor


def search_parameters(index: Any, options: SearchOptions, live: LiveEntries | None = None) -> Any | None:
    """What one search passes to `search`; None: the index has nothing that they concern.

    Args:
        index: Of faiss.
        options: How thoroughly it is searched.
        live: The entries that may be found, for inverted lists and flat indexes; None: all.
    """
    layer = faiss.downcast_index(index)
    selector = None if live is None else live.selector
    if isinstance(layer, faiss.IndexIDMap):
        return search_parameters(layer.index, options)
    if isinstance(layer, faiss.IndexPreTransform):
        inner = search_parameters(layer.index, options, live)
        return None if inner is None else faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(layer, faiss.IndexRefine):
        inner = search_parameters(layer.base_index, options)
        return faiss.IndexRefineSearchParameters(k_factor=options.refine_factor, base_index_params=inner)
    if isinstance(layer, faiss.IndexIVF):
        inner = search_parameters(layer.quantizer, options)
        return faiss.SearchParametersIVF(nprobe=min(options.nprobe, layer.nlist), quantizer_params=inner, sel=selector)
    if isinstance(layer, faiss.IndexHNSW):
        return faiss.SearchParametersHNSW(efSearch=options.ef_search)
    return None if selector is None else faiss.SearchParameters(sel=selector)

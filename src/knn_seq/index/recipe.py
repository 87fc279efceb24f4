"""Which faiss recipe for how many keys, and how many of them to train it on.

A recipe is a faiss factory string, and may end in `Refine(keys)`: then the candidates that the codes find are ranked by
the keys that lie on the disk anyway, mapped into memory, and no second copy of them is kept.

The choices come from the table of `benchmarks/indexes.py` in docs/indexes.md.
"""

from __future__ import annotations

import math
import re

from knn_seq.errors import InvalidSetting

REFINE_KEYS = ",Refine(keys)"

FLAT_ENTRIES = 20_000  # up to here an exact search is fast enough, and costs nothing to build
PROJECTED_DIMENSION = 128  # from here on half of the directions carry what tells candidates apart
WIDEST_PROJECTION = 128  # two dimensions a 4-bit code; more would gain less than they cost: the ranking makes up for it
NARROWER_PROJECTIONS = (128, 64)
MANY_LISTS = 1 << 10  # from here on scanning takes longest, and shorter lists cost little of the recall
GRAPH_LISTS = 1 << 14  # from here on a graph finds the lists of a query faster than comparing it with all of them

SAMPLE_PER_LIST = 40  # more of them take longer and find no more neighbours; faiss warns below 39
LEAST_SAMPLE = 20_000
ID_BYTES = 8


def default_recipe(entries: int, dimension: int, metric: str = "l2", memory: int | None = None) -> str:
    """The faiss factory string for so many keys of that dimension.

    Args:
        entries: How many keys there are.
        dimension: Of a key.
        metric: "l2", "ip" or "cosine".
        memory: Bytes that the index may take; None: as many as it likes.
    """
    if entries <= FLAT_ENTRIES and (memory is None or 4 * entries * dimension <= memory):
        return "Flat"
    lists = _lists(entries)
    if dimension < PROJECTED_DIMENSION or metric == "ip":  # what a projection drops counts in an inner product
        fits = memory is None or entries * (dimension // 4 + ID_BYTES) <= memory
        codes = f"PQ{dimension // 2}x4fs" if dimension % 2 == 0 and fits else "SQ8"
        return f"{lists},{codes}{REFINE_KEYS}"
    widest = min(dimension // 2 // 4 * 4, WIDEST_PROJECTION)
    for projected in (widest, *(narrower for narrower in NARROWER_PROJECTIONS if narrower < widest)):
        if memory is None or entries * (projected // 4 + ID_BYTES) <= memory:
            return f"OPQ{projected // 2}_{projected},{lists},PQ{projected // 2}x4fs{REFINE_KEYS}"
    # Fast-scan codes have to lie in memory; plain ones may stay on the disk.
    return f"OPQ{widest // 4}_{widest},{lists},PQ{widest // 4}{REFINE_KEYS}"


def paper_recipe(
    ivf_lists: int | None = None,
    hnsw_edges: int | None = None,
    pq_subspaces: int | None = None,
    opq: bool = False,
    pca: bool = False,
    transformed_dimension: int | None = None,
) -> str:
    """The factory string for an index that is described by its parts, as papers do.

    Args:
        ivf_lists: Inverted lists; None: the keys are not divided.
        hnsw_edges: Of the graph that finds the lists of a query or, without lists, the keys themselves.
        pq_subspaces: Of product quantization; None: the keys are kept as they are.
        opq: Rotate the keys first, so that the subspaces lose less.
        pca: Project them first onto the directions in which they vary most.
        transformed_dimension: Of the rotated or projected keys.
    """
    if opq and not pq_subspaces:
        raise InvalidSetting("OPQ rotates keys for product quantization: give the number of PQ subspaces too.")
    if opq and pca:
        raise InvalidSetting("OPQ and PCA both transform the keys: choose one of them.")
    if (pca or transformed_dimension) and not (transformed_dimension and (pca or opq)):
        raise InvalidSetting("PCA or OPQ and the transformed dimension belong together: give both.")
    suffix = f"_{transformed_dimension}" if transformed_dimension else ""
    parts = [f"OPQ{pq_subspaces}{suffix}"] if opq else []
    if pca:
        parts.append(f"PCA{transformed_dimension}")
    if ivf_lists:
        parts.append(f"IVF{ivf_lists}" + (f"_HNSW{hnsw_edges}" if hnsw_edges else ""))
    elif hnsw_edges:
        parts.append(f"HNSW{hnsw_edges}")
    if pq_subspaces:
        parts.append(f"PQ{pq_subspaces}")
    elif ivf_lists or not hnsw_edges:
        parts.append("Flat")
    return ",".join(parts)


def lists_for(entries: int) -> int:
    """How many inverted lists so many keys are divided into: the power of two next to the square root or twice it."""
    lists = 1 << round(math.log2(max(entries, 1)) / 2)
    return 2 * lists if lists >= MANY_LISTS else lists


def lists_of(recipe: str) -> int:
    """How many inverted lists a recipe has; 0: none."""
    lists = re.search(r"IVF(\d+)([kM]?)", recipe)
    return int(lists[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[lists[2]] if lists else 0


def training_size(recipe: str, entries: int) -> int:
    """How many of the keys a recipe that has to be trained is trained on."""
    return min(max(SAMPLE_PER_LIST * lists_of(recipe), LEAST_SAMPLE), entries)


def _lists(entries: int) -> str:
    count = lists_for(entries)
    return f"IVF{count}" + ("_HNSW32" if count >= GRAPH_LISTS else "")

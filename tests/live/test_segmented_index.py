"""One search of several segments, against exact search of what is not deleted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.index import INDEXES
from knn_seq.index.exact import exact_search
from knn_seq.index.exact_rows import ExactRows
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.segmented import Part, SegmentedIndex, tail_of
from knn_seq.storage.concatenated import ConcatenatedRows

DIMENSION = 16


def keys_of(count: int, seed: int = 0, dimension: int = DIMENSION) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = 4 * random.standard_normal((20, dimension))
    return (centres[random.integers(0, 20, count)] + random.standard_normal((count, dimension))).astype(np.float32)


def nearest(keys, live, queries, k, metric):
    """Exact distances and ids among the rows that are not deleted."""
    rows = np.flatnonzero(live)
    found = exact_search(keys[rows], queries, k, metric)
    return found.distances, torch.where(found.ids >= 0, torch.from_numpy(rows)[found.ids.clamp(min=0)], -1)


@settings(max_examples=60)
@given(
    metric=st.sampled_from(["l2", "ip", "cosine"]),
    sizes=st.tuples(st.integers(1, 60), st.integers(0, 40), st.lists(st.integers(1, 30), max_size=4)),
    share=st.sampled_from([0.0, 0.1, 0.6, 0.95]),
    k=st.integers(1, 30),
    kind=st.sampled_from(["torch", "faiss"]),
    seed=st.integers(0, 5),
    count=st.sampled_from([1, 7, 70]),
)
def test_exact_parts_find_what_one_exact_search_finds(metric, sizes, share, k, kind, seed, count):
    first, middle, small = sizes
    keys = keys_of(first + middle + sum(small), seed)
    live = np.random.default_rng(seed).random(len(keys)) >= share
    others = []
    base = INDEXES.get(kind).build(keys[:first], "Flat", metric)
    if middle:
        others.append(Part(INDEXES.get("torch").build(keys[first : first + middle], None, metric), first))
    starts = np.cumsum([first + middle, *small]).tolist()
    segments = [(Path(str(n)), start, keys[start : start + size]) for n, (start, size) in enumerate(zip(starts, small))]
    deleted = None if live.all() else ~live
    before = tail_of(segments[:1], DIMENSION, metric, None)
    tail = tail_of(segments, DIMENSION, metric, deleted, before)
    queries = keys_of(count, seed + 100)
    found = SegmentedIndex(base, others, tail, deleted).search(queries, k)
    distances, ids = nearest(keys, live, queries, k, metric)
    torch.testing.assert_close(found.distances, distances, rtol=1e-4, atol=1e-4)
    last = distances[:, -1:] - 1e-3 * distances[:, -1:].abs() - 1e-3
    for ours, theirs, inside in zip(found.ids, ids, distances < last, strict=True):
        assert set(theirs[inside].tolist()) <= set(ours.tolist())
    assert live[found.ids[found.ids >= 0].numpy()].all()


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_recall_of_an_index_that_grew_is_that_of_one_built_at_once(metric):
    keys = keys_of(24_000, dimension=32).astype(np.float16)
    grown, k = 22_000, 16
    live = np.random.default_rng(1).random(len(keys)) >= 0.05
    recipe = "IVF64,PQ16x4fs,Refine(keys)"
    index = FaissIndex.build(keys[:20_000], recipe, metric)
    assert index.growable
    index.add(keys[20_000:grown], np.arange(20_000, grown))
    index.attach_keys(ConcatenatedRows([keys[:20_000], keys[20_000:grown]]))
    small = [(Path("a"), grown, keys[grown:])]
    tail = tail_of(small, 32, metric, ~live)
    random = np.random.default_rng(2)
    queries = (keys[::120] + 0.3 * random.standard_normal((200, 32))).astype(np.float32)
    _, wanted = nearest(keys, live, queries, k, metric)

    def recall(ids) -> float:
        return float((ids.unsqueeze(2) == wanted.unsqueeze(1)).any(dim=2).float().mean())

    rows = torch.from_numpy(np.flatnonzero(live))
    at_once = FaissIndex.build(keys[live], recipe, metric).search(queries, k).ids
    found = SegmentedIndex(index, (), tail, ~live).search(queries, k).ids
    assert live[found[found >= 0].numpy()].all()
    assert recall(found) >= recall(rows[at_once.clamp(min=0)]) - 0.01
    assert recall(found) > 0.4


def test_rows_that_nothing_else_finds():
    rows = ExactRows(np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], np.float32), np.array([7, 8, 9]), "l2")
    rows = rows.without(np.array([False, True, False]))
    assert len(rows) == 2
    nothing = np.full((1, 3), np.inf, np.float32), np.full((1, 3), -1)
    distances, ids = rows.merge(np.array([[1.0, 0.0]], np.float32), nothing)
    assert ids.tolist() == [[7, 9, -1]]
    assert distances.tolist() == [[1.0, 41.0, np.inf]]

"""Search in subsets of sentences, against brute force."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.storage import Ragged
from knn_seq.subset.codec import KeyCodec
from knn_seq.subset.subset_index import SubsetIndex, TorchSubsets

DIMENSION = 32
RECIPES = [
    "Flat",
    "PQ8",
    "PQ16x4",
    "OPQ8,PQ8",
    "PCA16,PQ8x4",
    "PQ16x4,Refine(keys)",
    "PQ8,Refine(keys)",
    "PCA16,PQ8x4,Refine(keys)",
]


@cache
def corpus():
    """Keys of 90 sentences of 0 to 24 tokens, some of them twice."""
    generator = np.random.default_rng(3)
    lengths = generator.integers(0, 25, 90)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    keys = generator.standard_normal((offsets[-1], DIMENSION)) @ generator.standard_normal((DIMENSION, DIMENSION))
    twice = min(lengths[10], lengths[20])
    keys[offsets[20] : offsets[20] + twice] = keys[offsets[10] : offsets[10] + twice]
    values = generator.integers(4, 60, offsets[-1]).astype(np.int32)
    return keys.astype(np.float16), Ragged(values, offsets)


@cache
def index_of(recipe, metric):
    keys, values = corpus()
    if recipe == "Flat":
        return SubsetIndex(keys, values, metric)
    codec = KeyCodec(DIMENSION, metric, recipe.removesuffix(",Refine(keys)"))
    points = torch.from_numpy(keys.astype(np.float32))
    codec.train(points)
    return SubsetIndex(keys, values, metric, recipe, codec, codec.encode(points))


def reference(index, query, sentences, k):
    """Distance and number of every entry of some sentences, nearest first, one by one."""
    keys, values = corpus()
    entries = [e for s in sorted(set(sentences)) if s >= 0 for e in range(values.offsets[s], values.offsets[s + 1])]
    query = torch.as_tensor(query, dtype=torch.float32)
    found = []
    for entry in entries:
        if index.by_keys:
            key, asked = torch.from_numpy(keys[entry].astype(np.float32)), query
        else:
            key = index.codec.decode(torch.from_numpy(index.codes[entry : entry + 1]))[0]
            asked = index.codec.transform(query[None])[0]
        if index.metric == "ip":
            distance = -(asked @ key)
        elif index.metric == "l2":
            distance = (asked - key).square().sum()
        elif index.by_keys:
            distance = 1 - asked @ key / (asked.norm() * key.norm())
        else:
            distance = (asked - key).square().sum() / 2
        found.append((float(distance), entry))
    return sorted(found)[:k]


def check(found, row, wanted, k):
    distances, ids = found.distances[row].tolist(), found.ids[row].tolist()
    assert ids[len(wanted) :] == [-1] * (k - len(wanted))
    assert distances[len(wanted) :] == [float("inf")] * (k - len(wanted))
    assert found.values[row].tolist()[len(wanted) :] == [0] * (k - len(wanted))
    near = [distance for distance, _ in wanted]
    assert distances[: len(wanted)] == pytest.approx(near, rel=1e-4, abs=1e-3)
    assert len(set(ids[: len(wanted)])) == len(wanted)
    values = corpus()[1].items
    assert found.values[row].tolist()[: len(wanted)] == [values[i] for i in ids[: len(wanted)]]
    for place, (distance, entry) in enumerate(wanted):
        others = [d for i, d in enumerate(near) if i != place]
        alone = all(abs(distance - other) > 1e-3 * max(abs(distance), 1) for other in others)
        if alone and place < k - 1:
            assert ids[place] == entry


batches = st.lists(st.lists(st.integers(-1, 89), min_size=12, max_size=12), min_size=1, max_size=4)


@pytest.mark.parametrize("engine", ["own", "torch"])
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("recipe", RECIPES)
@settings(max_examples=12, deadline=None)
@given(batch=batches, k=st.integers(1, 40), seed=st.integers(0, 1000), data=st.data())
def test_subsets_are_searched_as_by_brute_force(recipe, metric, engine, batch, k, seed, data):
    if metric == "ip" and recipe.startswith("PCA"):
        return
    index, chosen = index_of(recipe, metric), np.array(batch)
    if engine == "torch":
        subsets = TorchSubsets(index, [index._entries(row) for row in chosen], torch.device("cpu"))
    else:
        # What codes of 8 times 4 bits leave out would be missing: here every entry is a candidate.
        subsets = index.subsets(chosen, factor=len(corpus()[0]) if index.by_keys else None)
    # Any number of rows for a sentence, in any order, and none for some.
    rows = data.draw(st.lists(st.integers(0, len(batch) - 1), min_size=1, max_size=7))
    keys = corpus()[0].astype(np.float32)
    generator = np.random.default_rng(seed)
    queries = keys[generator.integers(0, len(keys), len(rows))] + generator.standard_normal((len(rows), DIMENSION))
    found = subsets.search(torch.from_numpy(queries.astype(np.float32)), torch.tensor(rows), k)
    for row, sentence in enumerate(rows):
        check(found, row, reference(index, queries[row], batch[sentence], k), k)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_row_is_the_same_whatever_else_is_asked(recipe):
    index = index_of(recipe, "l2")
    chosen = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 20, -1]])
    queries = torch.from_numpy(corpus()[0][[3, 77, 200, 400, 500]].astype(np.float32) + 0.1)
    sentences = torch.tensor([2, 0, 0, 1, 2])
    together = index.subsets(chosen).search(queries, sentences, 9)
    for row, sentence in enumerate(sentences.tolist()):
        alone = index.subsets(chosen[sentence : sentence + 1]).search(queries[row : row + 1], torch.tensor([0]), 9)
        assert torch.equal(alone.ids[0], together.ids[row])
        # A rotation of several queries rounds otherwise than that of one.
        torch.testing.assert_close(alone.distances[0], together.distances[row], rtol=1e-6, atol=0)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_batch_without_any_sentence(recipe):
    found = index_of(recipe, "l2").subsets(np.full((2, 5), -1)).search(torch.zeros(3, 32), torch.tensor([0, 1, 1]), 4)
    assert not found.found.any()


def test_many_candidates_are_ranked_where_the_subset_is_large():
    """With more entries than candidates the codes have to find the right ones."""
    generator = np.random.default_rng(0)
    keys = (generator.standard_normal((6000, 8)) @ generator.standard_normal((8, DIMENSION))).astype(np.float16)
    values = Ragged(np.arange(6000, dtype=np.int32), np.arange(0, 6001, 20))
    codec = KeyCodec(DIMENSION, "l2", "PCA16,PQ16x4")
    codec.train(torch.from_numpy(keys.astype(np.float32)))
    codes = codec.encode(torch.from_numpy(keys.astype(np.float32)))
    queries = torch.from_numpy(keys[generator.integers(0, 6000, 40)].astype(np.float32)) + 0.05
    everything, rows = np.arange(300)[None], torch.zeros(40, dtype=torch.int64)
    exact = SubsetIndex(keys, values).subsets(everything).search(queries, rows, 16)
    ranked = SubsetIndex(keys, values, "l2", "PCA16,PQ16x4,Refine(keys)", codec, codes).subsets(everything)
    found = ranked.search(queries, rows, 16)
    recall = np.mean([len(set(a) & set(b)) / 16 for a, b in zip(found.ids.tolist(), exact.ids.tolist(), strict=True)])
    assert recall > 0.97
    by_codes = SubsetIndex(keys, values, "l2", "PCA16,PQ16x4", codec, codes)
    decoded = SubsetIndex(codec.decode(torch.from_numpy(codes)).numpy(), values)
    wanted = decoded.subsets(everything).search(codec.transform(queries), rows, 16)
    np.testing.assert_allclose(
        by_codes.subsets(everything).search(queries, rows, 16).distances, wanted.distances, rtol=1e-4
    )

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq import KnnSeqError
from knn_seq.index.torch import TorchIndex
from knn_seq.subset import padded
from knn_seq.subset.padded import PaddedKeys, SentenceKeys

DISTANCE_METRICS = ["l2", "ip", "cosine"]


def reference(sentence, query, k, metric):
    """(distance, id, value) of the k nearest, in float64, one key after the other."""
    found = []
    for key, entry, value in zip(sentence.keys, sentence.ids.tolist(), sentence.values.tolist(), strict=True):
        q, x = query.double().numpy(), key.double().numpy()
        if metric == "l2":
            distance = ((q - x) ** 2).sum()
        elif metric == "ip":
            distance = -(q @ x)
        else:
            distance = 1 - q @ x / np.linalg.norm(q) / np.linalg.norm(x)
        found.append((distance, entry, value))
    return sorted(found)[:k]


def random_sentences(seed, sizes, dimension, dtype=torch.float32, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    sentences, first = [], 0
    for size in sizes:
        keys = (torch.randn(size, dimension, generator=generator) + shift).to(dtype)
        ids = first + torch.randperm(size, generator=generator)
        sentences.append(SentenceKeys(keys, ids, torch.randint(0, 9, (size,), generator=generator)))
        first += size
    return sentences


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 999),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    dimension=st.integers(1, 9),
    rows=st.lists(st.integers(0, 4), max_size=12),
    k=st.integers(1, 30),
    metric=st.sampled_from(DISTANCE_METRICS),
    dtype=st.sampled_from([torch.float32, torch.float16]),
    exact=st.sampled_from([None, False]),
)
def test_it_finds_what_a_slow_search_finds(seed, sizes, dimension, rows, k, metric, dtype, exact):
    sentences = random_sentences(seed, sizes, dimension, dtype)
    rows = [row % len(sizes) for row in rows]
    queries = torch.randn(len(rows), dimension, generator=torch.Generator().manual_seed(seed + 1))
    got = PaddedKeys(sentences, metric, exact).search(queries, torch.tensor(rows, dtype=torch.int64), k)
    assert got.distances.dtype == torch.float32
    assert got.ids.shape == got.values.shape == got.distances.shape == (len(rows), k)
    for i, row in enumerate(rows):
        wanted = reference(sentences[row], queries[i], k, metric)
        found = len(wanted)
        np.testing.assert_allclose(got.distances[i, :found], [one[0] for one in wanted], rtol=1e-4, atol=1e-5)
        # Two that lie within rounding of each other may change places.
        near = {one[1]: one[0] for one in reference(sentences[row], queries[i], 99, metric)}
        value_of = dict(zip(sentences[row].ids.tolist(), sentences[row].values.tolist(), strict=True))
        assert len(set(got.ids[i, :found].tolist())) == found
        for entry, distance, value in zip(
            got.ids[i, :found].tolist(), got.distances[i].tolist(), got.values[i].tolist(), strict=False
        ):
            assert near[entry] == pytest.approx(distance, rel=1e-4, abs=1e-5)
            assert value_of[entry] == value
        assert got.ids[i, found:].tolist() == [-1] * (k - found)
        assert got.distances[i, found:].isinf().all()
        assert not got.values[i, found:].any()


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_a_sentence_alone_gives_the_same_bits(metric, shift):
    """Also for keys that lie close together far from the origin, where products lose their digits."""
    sentences = random_sentences(3, [700, 5, 0, 300, 64], 48, shift=shift)
    rows = torch.tensor([4, 0, 0, 3, 1, 0, 2, 3, 4, 0])
    queries = torch.randn(len(rows), 48, generator=torch.Generator().manual_seed(8)) + shift
    together = PaddedKeys(sentences, metric).search(queries, rows, 16)
    for row in range(len(rows)):
        alone = PaddedKeys([sentences[rows[row]]], metric)
        got = alone.search(queries[row : row + 1], torch.zeros(1, dtype=torch.int64), 16)
        assert torch.equal(got.distances[0], together.distances[row])
        assert torch.equal(got.ids[0], together.ids[row])
        assert torch.equal(got.values[0], together.values[row])


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
def test_it_is_the_exact_index_for_each_sentence(metric):
    sentences = random_sentences(5, [400, 90], 32, shift=3.0)
    queries = torch.randn(12, 32) + 3.0
    rows = torch.arange(12) % 2
    got = PaddedKeys(sentences, metric).search(queries, rows, 20)
    for number, sentence in enumerate(sentences):
        index = TorchIndex(32, metric, device="cpu")
        index.add(sentence.keys, sentence.ids)
        distances, ids = index.search(queries[rows == number], 20)
        assert torch.equal(got.ids[rows == number], ids)
        torch.testing.assert_close(got.distances[rows == number], distances, rtol=1e-6, atol=1e-6)


def test_equal_distances_come_in_the_order_of_ids():
    keys = torch.ones(50, 6)
    ids = torch.randperm(50)
    got = PaddedKeys([SentenceKeys(keys, ids, ids % 7)]).search(torch.zeros(2, 6), torch.tensor([0, 0]), 12)
    assert got.ids.tolist() == [list(range(12))] * 2
    assert got.values.tolist() == [[entry % 7 for entry in range(12)]] * 2


def test_a_key_that_the_product_hides_is_found(monkeypatch):
    """Distances far below what float32 products can tell apart: too few candidates must be noticed."""
    generator = torch.Generator().manual_seed(1)
    centres = 1000 * torch.randn(2, 16, generator=generator)
    keys = torch.cat([centre + 0.01 * torch.randn(100, 16, generator=generator) for centre in centres])
    ids = torch.arange(200)
    queries = keys[[3, 150]] + 1e-3
    monkeypatch.setattr(padded, "EXTRA_CANDIDATES", 0)
    got = PaddedKeys([SentenceKeys(keys, ids, ids)]).search(queries, torch.tensor([0, 0]), 4)
    exact = (queries.unsqueeze(1) - keys).square().sum(dim=2)
    assert torch.equal(got.ids, exact.argsort(dim=1, stable=True)[:, :4])
    assert got.ids[:, 0].tolist() == [3, 150]


@pytest.mark.parametrize("numbers", [1, 300, 5000])
def test_little_memory_changes_nothing(monkeypatch, numbers):
    sentences = random_sentences(4, [30, 0, 60, 7], 8, torch.float16)
    rows = torch.tensor([2, 2, 2, 0, 2, 3, 0, 2, 1])
    queries = torch.randn(len(rows), 8)
    wanted = PaddedKeys(sentences).search(queries, rows, 9)
    monkeypatch.setattr(padded, "MAX_VALUES", numbers)
    got = PaddedKeys(sentences).search(queries, rows, 9)
    assert torch.equal(got.ids, wanted.ids)
    assert torch.equal(got.distances, wanted.distances)


def test_keys_stay_in_their_type_and_queries_may_have_another():
    sentences = random_sentences(4, [30, 20], 8, torch.float16)
    index = PaddedKeys(sentences)
    assert index.keys.dtype == torch.float16
    got = index.search(sentences[1].keys[:3], torch.tensor([1, 1, 1]), 1)
    assert got.ids[:, 0].tolist() == sentences[1].ids[:3].tolist()
    assert got.distances.tolist() == [[0.0]] * 3


def test_no_keys_at_all():
    empty = SentenceKeys(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    for sentences in ([], [empty, empty]):
        got = PaddedKeys(sentences).search(torch.zeros(len(sentences), 4), torch.arange(len(sentences)), 3)
        assert got.ids.tolist() == [[-1] * 3] * len(sentences)


def test_an_unknown_metric_is_refused():
    with pytest.raises(KnnSeqError, match="no metric 'taxi'"):
        PaddedKeys([], "taxi")


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("metric", DISTANCE_METRICS)
def test_products_in_half_precision_do_not_overflow(metric, exact):
    """As on a GPU: keys and queries so long that their products are beyond what float16 can hold."""
    [sentence] = random_sentences(3, [300], 64, torch.float16, shift=60.0)
    queries = sentence.keys[:20].float() + torch.randn(20, 64, generator=torch.Generator().manual_seed(1))
    assert (queries @ sentence.keys.float().T).amax() > torch.finfo(torch.float16).max
    keys = PaddedKeys([sentence], metric, exact)
    keys.product_dtype = torch.float16
    found = keys.search(queries, torch.zeros(20, dtype=torch.int64), 5)
    for row, query in enumerate(queries):
        wanted = reference(sentence, query, 5, metric)
        if exact:
            np.testing.assert_allclose(found.distances[row], [one[0] for one in wanted], rtol=1e-3, atol=1e-5)
        elif metric == "l2":  # the others have no centre to take off, so hardly a digit is left
            assert len(set(found.ids[row].tolist()) & {one[1] for one in wanted}) >= 4
        assert found.distances[row].isfinite().all()

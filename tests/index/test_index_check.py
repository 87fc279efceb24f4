from __future__ import annotations

import numpy as np
import pytest
import torch

from knn_seq.errors import KnnSeqError
from knn_seq.index import SearchIndex
from knn_seq.index.check import check_index
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.torch import TorchIndex
from knn_seq.settings import DISTANCE_METRICS


def clustered(count, dimension=16, seed=0):
    random = np.random.default_rng(seed)
    centres = 2 * random.standard_normal((20, dimension))
    return (centres[random.integers(20, size=count)] + random.standard_normal((count, dimension))).astype(np.float16)


def expected_recall(index, keys, rows, k):
    """By ids, one query after the other."""
    exact = TorchIndex(keys.shape[1], index.metric, device="cpu")
    exact.add(keys)
    shares = []
    for row in rows:
        found, true = (
            [entry for entry in made.search(keys[[row]], k + 1).ids[0].tolist() if entry != row][:k]
            for made in (index, exact)
        )
        shares.append(len(set(found) & set(true)) / k)
    return np.mean(shares)


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize("recipe", ["Flat", "PQ4x4", "IVF16,Flat"])
def test_recall_is_the_share_of_the_true_neighbours(metric, recipe):
    keys = clustered(900)
    index = FaissIndex.build(keys, recipe, metric, nprobe=1)
    check = check_index(index, keys, k=10, queries=900)
    assert check.recall == pytest.approx(expected_recall(index, keys, range(900), 10), abs=2e-3)
    assert (check.recall == 1.0) == (recipe == "Flat")
    assert (check.k, check.queries, check.entries) == (10, 900, 900)
    assert min(check.milliseconds, check.milliseconds_alone) > 0


def test_a_sample_tells_about_the_same():
    keys = clustered(3000)
    index = FaissIndex.build(keys, "IVF16,Flat", nprobe=1)
    recall = check_index(index, keys, k=16, queries=3000).recall
    assert check_index(index, keys, k=16, queries=300).recall == pytest.approx(recall, abs=0.05)
    assert check_index(index, keys, k=16, queries=300, seed=1) != check_index(index, keys, k=16, queries=300)


class Backwards(TorchIndex):
    """Of equally near entries it returns those with the highest ids."""

    def _search(self, queries, k, options):
        distances, ids = super()._search(queries, len(self), options)
        order = ids.flip(1).gather(1, distances.flip(1).sort(dim=1, stable=True).indices)
        return distances[:, :k], order[:, :k]


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_equally_near_entries_are_as_good(metric):
    keys = np.repeat(clustered(50), 30, axis=0)
    index = Backwards(16, metric, device="cpu")
    index.add(keys)
    assert expected_recall(index, keys, [0], 10) < 1
    assert check_index(index, keys, k=10, queries=100).recall == 1.0


def test_missing_entries_are_not_found():
    keys = clustered(1000)
    index = FaissIndex.build(keys, "IVF100,Flat", nprobe=1)
    assert bool((index.search(keys, 501).ids[:, -1] == -1).any())
    assert check_index(index, keys, k=500, queries=50).recall < 0.2


def test_k_and_queries_beyond_the_keys():
    keys = clustered(5)
    index: SearchIndex = FaissIndex.build(keys, "Flat")
    read = []
    check = check_index(index, keys, on_progress=read.append)
    assert (check.k, check.queries, check.recall, sum(read)) == (4, 5, 1.0, 5)
    assert str(check).splitlines()[0] == "recall@4 1.0000 on 5 queries out of 5 keys"
    assert "ms a query in a batch of 5" in str(check)


@pytest.mark.parametrize(
    ("entries", "keys", "options", "sentence"),
    [
        (4, 5, {}, "has 4 entries"),
        (5, 5, {"k": 0}, "at least 1"),
        (5, 5, {"queries": 0}, "at least 1"),
        (1, 1, {}, "1"),
    ],
)
def test_what_cannot_be_checked(entries, keys, options, sentence):
    index = FaissIndex.build(clustered(entries), "Flat")
    with pytest.raises(KnnSeqError, match=sentence):
        check_index(index, clustered(keys), **options)


def test_queries_are_in_no_way_changed():
    keys = torch.nn.functional.normalize(torch.from_numpy(clustered(200).astype(np.float32))).numpy() * 3
    before = keys.copy()
    check_index(FaissIndex.build(keys, "Flat", "cosine"), keys)
    assert np.array_equal(keys, before)

"""How many entries a neighbour stands for stays beside it, whatever is done with neighbours."""

from __future__ import annotations

import numpy as np
import torch

from knn_seq.index import Neighbours

NEIGHBOURS = Neighbours(
    torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, torch.inf]]),
    torch.tensor([[7, 8, 9], [10, 11, 0]]),
    torch.tensor([[0, 1, 2], [3, 4, -1]]),
)
COUNTS = np.array([5, 1, 2, 3, 9], np.int32)


def test_counts_are_those_of_the_entries():
    assert NEIGHBOURS.with_counts(None) is NEIGHBOURS
    counted = NEIGHBOURS.with_counts(COUNTS)
    assert counted.counts.tolist() == [[5, 1, 2], [3, 9, 1]]
    assert torch.equal(counted.ids, NEIGHBOURS.ids)


def test_counts_follow_their_neighbours():
    counted = NEIGHBOURS.with_counts(COUNTS)
    assert counted.rows(torch.tensor([1, 1, 0])).counts.tolist() == [[3, 9, 1], [3, 9, 1], [5, 1, 2]]
    assert counted.nearest(2).counts.tolist() == [[5, 1], [3, 9]]
    assert counted.to("cpu").counts.tolist() == counted.counts.tolist()
    scattered = counted.scatter(torch.tensor([False, True, True]))
    assert scattered.counts.tolist() == [[1, 1, 1], [5, 1, 2], [3, 9, 1]]
    without = counted.without(torch.tensor([[True, False, False], [False, True, False]]))
    assert without.counts.tolist() == [[1, 2, 1], [3, 1, 1]]
    assert without.ids.tolist() == [[1, 2, -1], [3, -1, -1]]


def test_joined_with_others_that_have_none():
    joined = Neighbours.join([NEIGHBOURS, NEIGHBOURS.with_counts(COUNTS)])
    assert joined.counts.tolist() == [[1, 1, 1], [1, 1, 1], [5, 1, 2], [3, 9, 1]]
    assert Neighbours.join([NEIGHBOURS, NEIGHBOURS]).counts is None

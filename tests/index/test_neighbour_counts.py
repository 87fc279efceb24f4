"""How many entries a neighbour stands for stays beside it, whatever is done with neighbours."""

from __future__ import annotations

import numpy as np
import pytest
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


@pytest.mark.parametrize("counted", [(False, False), (True, False), (False, True), (True, True)])
def test_some_rows_are_replaced(counted):
    def made(rows, first, counts):
        ids = torch.arange(first, first + rows * 2).view(rows, 2)
        return Neighbours(ids.float(), ids + 100, ids, counts=ids + 1 if counts else None)

    old, new = made(3, 0, counted[0]), made(2, 50, counted[1])
    got = old.replaced(torch.tensor([True, False, True]), new)
    assert got.ids.tolist() == [[50, 51], [2, 3], [52, 53]]
    assert got.values.tolist() == [[150, 151], [102, 103], [152, 153]]
    assert got.distances.tolist() == [[50.0, 51.0], [2.0, 3.0], [52.0, 53.0]]
    if not any(counted):
        assert got.counts is None
    else:
        kept, put = [3, 4] if counted[0] else [1, 1], [[51, 52], [53, 54]] if counted[1] else [[1, 1], [1, 1]]
        assert got.counts.tolist() == [put[0], kept, put[1]]
    assert old.ids.tolist() == [[0, 1], [2, 3], [4, 5]]  # as it was
    nothing = torch.zeros(3, dtype=torch.bool)
    assert old.replaced(nothing, made(0, 0, False)) is old

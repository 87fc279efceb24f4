"""Arrays of several segments that look like one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.storage.concatenated import ConcatenatedRows, ConcatenatedSequence, joined_ragged, joined_rows
from knn_seq.storage.ragged import Ragged

SIZES = st.lists(st.integers(0, 6), min_size=2, max_size=5).filter(lambda sizes: sum(sizes) > 0)


@given(sizes=SIZES, width=st.integers(1, 3), data=st.data())
def test_rows_are_those_of_the_array_that_it_stands_for(sizes, width, data):
    whole = np.arange(sum(sizes) * width).reshape(-1, width).astype(np.float16)
    rows = ConcatenatedRows(np.split(whole, np.cumsum(sizes)[:-1]))
    assert (len(rows), rows.shape, rows.dtype) == (len(whole), whole.shape, whole.dtype)
    shape = data.draw(st.sampled_from([(0,), (4,), (2, 3)]))
    chosen = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=6, max_size=6)))
    chosen = np.resize(chosen, shape).astype(np.int64)
    np.testing.assert_array_equal(rows[chosen], whole[chosen])
    np.testing.assert_array_equal(np.take(rows, chosen, axis=0), whole[chosen])
    np.testing.assert_array_equal(
        np.take(rows, chosen + 3, axis=0, mode="clip"), whole.take(chosen + 3, 0, mode="clip")
    )
    start, stop = data.draw(st.integers(-8, 30)), data.draw(st.integers(-8, 30))
    np.testing.assert_array_equal(rows[start:stop], whole[start:stop])
    place = data.draw(st.integers(-len(whole), len(whole) - 1))
    np.testing.assert_array_equal(rows[place], whole[place])
    mask = np.arange(len(whole)) % 2 == 0
    np.testing.assert_array_equal(rows[mask], whole[mask])
    for wrong in (len(whole), -len(whole) - 1):
        with pytest.raises(IndexError):
            rows[wrong]
        with pytest.raises(IndexError):
            rows.take([wrong])


@given(lengths=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=4))
def test_sequences_are_numbered_through(lengths):
    parts, expected = [], []
    for each in lengths:
        sequences = [np.arange(10 * len(expected) + n, 10 * len(expected) + n + size) for n, size in enumerate(each)]
        expected += [sequence.tolist() for sequence in sequences]
        parts.append(Ragged(np.concatenate(sequences), np.cumsum([0, *each])))
    joined = joined_ragged(parts)
    assert [sequence.tolist() for sequence in joined] == expected
    assert joined.lengths().tolist() == [len(sequence) for sequence in expected]
    places = np.arange(len(joined.items))
    rows = [n for n, sequence in enumerate(expected) for _ in sequence]
    assert joined.row_of(places).tolist() == rows
    assert joined.places_of(np.arange(len(expected))).tolist() == places.tolist()
    assert joined.places_in_rows(places).tolist() == [n for sequence in expected for n in range(len(sequence))]


def test_one_part_costs_nothing():
    array = np.arange(4)
    assert joined_rows([array]) is array
    assert list(ConcatenatedSequence([[1, 2], [3]])) == [1, 2, 3]
    assert ConcatenatedSequence([[1, 2], [3]])[-1] == 3

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.runtime.first_places import first_places, first_places_on_device


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=1)))
def test_every_number_has_the_place_where_it_is_first(rows):
    places = [[row.index(number) for number in row] for row in rows]
    assert first_places(torch.tensor(rows)).tolist() == places
    assert first_places_on_device(torch.tensor(rows)).tolist() == places

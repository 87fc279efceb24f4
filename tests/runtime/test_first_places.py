from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.runtime.first_places import first_places


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=1)))
def test_every_number_has_the_place_where_it_is_first(rows):
    assert first_places(np.array(rows)).tolist() == [[row.index(number) for number in row] for row in rows]

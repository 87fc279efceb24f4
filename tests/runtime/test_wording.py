from __future__ import annotations

import pytest

from knn_seq.runtime.wording import count


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((1, "line"), "1 line"),
        ((0, "line"), "0 lines"),
        ((2_000, "line"), "2,000 lines"),
        ((1, "entry", "entries"), "1 entry"),
        ((3, "entry", "entries"), "3 entries"),
    ],
)
def test_a_number_with_its_noun(words, text):
    assert count(*words) == text

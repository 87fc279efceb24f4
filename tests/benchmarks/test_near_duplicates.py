from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from near_duplicates import LARGEST_OVERLAP, ngrams, without_near_duplicates

sentences = st.lists(st.lists(st.sampled_from("abc"), max_size=12).map(" ".join), max_size=8)


@given(sentences, sentences)
def test_the_filter_is_what_comparing_every_pair_finds(sources, stored):
    def same(one, other):
        first, second = ngrams(one), ngrams(other)
        return len(first & second) / len(first | second) > LARGEST_OVERLAP

    expected = [i for i, source in enumerate(sources) if not any(same(source, other) for other in stored)]
    assert without_near_duplicates(sources, stored) == expected


def test_case_digits_and_punctuation_make_no_difference():
    assert without_near_duplicates(["Página 7: fim!", "Outra coisa"], ["página 12 - FIM"]) == [1]

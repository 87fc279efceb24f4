from __future__ import annotations

import pytest

from knn_seq.evaluate.repetition import new_repetitions, repeated_ngrams


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("", set()),
        ("one two three four", set()),
        ("one two three four one two three", set()),
        ("one two three four, One two three FOUR.", {("one", "two", "three", "four")}),
        ("a a a a", set()),
        ("a a a a a", {("a",) * 4}),
        ("what he said, and what he saw: and what he said — and", {("what", "he", "said", "and")}),
        ("天地玄黃宇宙天地玄黃", {tuple("天地玄黃")}),
    ],
)
def test_words_in_a_row_that_occur_twice(text, repeated):
    assert repeated_ngrams(text) == repeated


def test_what_the_other_output_repeats_as_well_does_not_count():
    twice = "he went up and he went up and"
    other = f"{twice} they saw it all they saw it all"
    outputs, base = [twice, twice, "", other, twice], ["he went up and", twice, twice, twice, other]
    assert new_repetitions(outputs, base) == [True, False, False, True, False]

"""Shortlists that are learned, against a slow reference."""

from __future__ import annotations

from collections import defaultdict
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.build import lexicon
from knn_seq.build.lexicon import ROUNDS, learn_shortlist
from knn_seq.storage.ragged import Ragged

SIZE = 12
PAIRS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 14), min_size=1, max_size=5), st.lists(st.integers(0, 11), min_size=1, max_size=5)
    ),
    min_size=1,
    max_size=8,
)


def ragged(sequences):
    return Ragged(np.concatenate(sequences).astype(np.int32), np.cumsum([0, *map(len, sequences)]))


def sides(pairs):
    return ragged([source for source, _ in pairs]), ragged([target for _, target in pairs])


def slow_counts(pairs):
    """Expected counts of IBM model 1, token by token."""
    probabilities = None
    for _ in range(ROUNDS):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in pairs:
            for t in set(target):
                weights = {s: 1.0 if probabilities is None else probabilities[s, t] for s in set(source)}
                for s, weight in weights.items():
                    counts[s, t] += weight / sum(weights.values())
        totals: dict[int, float] = defaultdict(float)
        for (s, _), value in counts.items():
            totals[s] += value
        probabilities = {(s, t): value / totals[s] for (s, t), value in counts.items()}
    return counts


@settings(max_examples=40, deadline=None)
@given(pairs=PAIRS, block=st.integers(1, 40))
def test_counts_are_those_of_a_slow_reference_whatever_a_block_holds(pairs, block):
    learned = []
    with (
        patch.object(lexicon, "BLOCK", block),
        patch.object(lexicon, "_shortlist", lambda counts, *_: learned.append(counts)),
    ):
        learn_shortlist(*sides(pairs), SIZE)
    expected = slow_counts(pairs)
    assert [divmod(key, SIZE) for key in learned[0].keys.tolist()] == sorted(expected)
    np.testing.assert_allclose(learned[0].counts, [expected[pair] for pair in sorted(expected)], rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(pairs=PAIRS, best=st.integers(1, 4), frequent=st.integers(0, 4))
def test_a_source_has_its_best_itself_and_the_most_frequent(pairs, best, frequent):
    shortlist = learn_shortlist(*sides(pairs), SIZE, best=best, frequent=frequent, always=[7])
    counts, seen = slow_counts(pairs), defaultdict(int)
    for _, target in pairs:
        for token in set(target):
            seen[token] += 1
    often = sorted(seen, key=lambda token: (-seen[token], token))[:frequent]
    assert shortlist.frequent.tolist() == sorted({*often, 7})
    for token in range(15):
        allowed = set(shortlist.of([token]).tolist()) - set(shortlist.frequent.tolist()) - {token}
        its = {t: count for (s, t), count in counts.items() if s == token and count > 0}
        assert allowed <= set(its)
        assert len(allowed) <= best
        # What is left out is no more probable than what is in, nor would there be a place for it.
        left = [its[t] for t in its if t not in allowed and t not in shortlist.frequent and t != token]
        kept = sorted(its.values(), reverse=True)[:best]
        assert all(count <= kept[-1] * (1 + 1e-9) for count in left)
        assert token >= SIZE or token in shortlist.of([token])


def test_a_full_table_keeps_the_largest_counts():
    pairs = [([1, 2], [3, 4])] * 9 + [([5], [6]), ([7, 8], [9, 10])]
    with patch.object(lexicon, "TABLE", 8), patch.object(lexicon, "BLOCK", 4):
        shortlist = learn_shortlist(*sides(pairs), SIZE, frequent=0)
    assert shortlist.of([1]).tolist() == [1, 3, 4]
    assert shortlist.of([7]).tolist() == [7]


def test_some_of_many_sentences_are_read():
    pairs = [([number % 5], [number % 5 + 5]) for number in range(100)]
    with patch.object(lexicon, "SENTENCES", 10):
        shortlist = learn_shortlist(*sides(pairs), SIZE, frequent=0)
    assert shortlist.of([0]).tolist() == [0, 5]
    chosen = learn_shortlist(*sides(pairs), SIZE, np.array([3, 8]), frequent=1)
    assert (chosen.of([0]).tolist(), chosen.of([3]).tolist()) == ([0, 8], [3, 8])


@pytest.mark.parametrize("numbers", [[], None])
def test_no_sentences_leave_copies_alone(numbers):
    empty = Ragged(np.empty(0, np.int32), np.zeros(1, np.int64))
    shortlist = learn_shortlist(empty, empty, SIZE, None if numbers is None else np.array(numbers, np.int64))
    assert shortlist.of([4]).tolist() == [4]

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.corpus import SentencePair, split_corpus
from knn_seq.errors import KnnSeqError


def as_pairs(sources):
    return [SentencePair(source, f"target {line}", f"line {line}") for line, source in enumerate(sources, 1)]


@given(
    sources=st.lists(st.text("aA ß", max_size=3), min_size=1, max_size=60),
    dev=st.integers(0, 8),
    test=st.integers(0, 8),
    seed=st.integers(0, 3),
)
def test_parts_are_disjoint_and_complete(sources, dev, test, seed):
    pairs = as_pairs(sources)
    if dev + test >= len(pairs):
        with pytest.raises(KnnSeqError, match="cannot be split"):
            split_corpus(pairs, (dev, test), seed)
        return
    parts = split_corpus(pairs, (dev, test), seed)
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    assert all(part == sorted(part, key=pairs.index) for part in parts)
    assert len(parts[1]) <= dev
    assert len(parts[2]) <= test
    seen = [{" ".join(pair.source.split()).casefold() for pair in part} for part in parts]
    assert sum(map(len, seen)) == len(set().union(*seen))


def test_sizes_are_met_where_sources_repeat():
    pairs = as_pairs([f"sentence {i % 700}" for i in range(1000)])
    train, dev, test = split_corpus(pairs, (100, 150), seed=1)
    assert (len(train), len(dev), len(test)) == (750, 100, 150)


def test_the_split_is_fixed_by_seed_and_text():
    pairs = as_pairs([f"sentence {i}" for i in range(40)])
    _, dev, test = split_corpus(pairs, (4, 3), seed=7)
    assert [pairs.index(pair) + 1 for pair in dev + test] == [24, 27, 33, 36, 15, 18, 32]
    shuffled = random.Random(0).sample(pairs, len(pairs))
    assert set(split_corpus(shuffled, (4, 3), seed=7)[1]) == set(dev)
    assert split_corpus(pairs, (4, 3), seed=8)[1] != dev

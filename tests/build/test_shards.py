"""Shards: how they are cut, and how several writers share one file."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knn_seq.storage.shard as shard_files
from knn_seq import KnnSeqError
from knn_seq.build.batches import plan_batches
from knn_seq.build.shards import LEAST_TOKENS, MOST_TOKENS, cut_shards
from knn_seq.storage import FolderLock, KeyWriter, Ragged, open_keys
from knn_seq.storage.shard import ShardWriter, restore_borders


def ragged(lengths) -> Ragged:
    return Ragged(np.zeros(int(np.sum(lengths)), np.int32), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(1, 2000))
def test_shards_hold_sentences_in_order_and_about_equally_many_tokens(lengths, tokens):
    shards = cut_shards(ragged(lengths), tokens)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert [i for shard in shards for i in shard.sentences] == list(range(len(lengths)))
    assert [i for shard in shards for i in shard.entries] == list(range(sum(lengths)))
    for shard in shards:
        assert len(shard.entries) == sum(lengths[i] for i in shard.sentences) > 0
    count = max(round(sum(lengths) / tokens), 1)
    fair = sum(lengths) / count
    if fair > max(lengths):  # else a long sentence may take the place of several shards
        assert len(shards) == count
        assert all(abs(len(shard.entries) - fair) <= max(lengths) for shard in shards)


@pytest.mark.parametrize(
    ("tokens", "size"),
    [(1000, LEAST_TOKENS), (40 * LEAST_TOKENS, 40 * LEAST_TOKENS // 32), (100 * MOST_TOKENS, MOST_TOKENS)],
)
def test_their_size_follows_from_that_of_the_corpus(tokens, size):
    """A few shards of a small corpus, some for every worker of a larger one, and none that takes hours."""
    sentences = np.full(tokens // 1000, 1000)
    fake = Ragged(np.broadcast_to(np.int32(0), (int(sentences.sum()),)), np.concatenate([[0], np.cumsum(sentences)]))
    shards = cut_shards(fake)
    assert len(shards) == max(round(tokens / size), 1)


def test_batches_never_mix_shards():
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 60, 5000)
    targets = ragged(lengths)
    shards = cut_shards(targets, 10_000)
    assert len(shards) > 10
    owner = np.concatenate([np.full(len(shard.sentences), shard.number) for shard in shards])
    batches = list(plan_batches(targets, targets, 1000, shards))
    assert all(len(set(owner[batch])) == 1 for batch in batches)
    alone = [batch for shard in shards for batch in plan_batches(targets, targets, 1000, [shard])]
    assert all((one == other).all() for one, other in zip(batches, alone, strict=True))


@pytest.mark.parametrize("border", [1, 64, 1 << 20])
def test_rows_that_a_neighbour_overwrote_are_restored(tmp_path, monkeypatch, border):
    """What a network file system may do to rows at the border of two shards is done here by hand."""
    monkeypatch.setattr(shard_files, "BORDER_BYTES", border)
    keys = np.random.default_rng(0).standard_normal((100, 8)).astype(np.float16)
    count = min(max(border // 16, 1), 50)
    writer, _ = KeyWriter.open_or_create(tmp_path / "keys.h5", keys.shape, keys.dtype)
    for number, rows in enumerate((range(50), range(50, 100))):
        borders = tmp_path / f"{number}.h5"
        with ShardWriter(tmp_path / "keys.h5", rows, borders, resume=False) as shard:
            for start in (rows.start + 20, rows.start, rows.start + 40):  # in any order
                stop = min(start + 20, rows.stop) if start == rows.start + 20 else min(start + 20, rows.start + 50)
                shard.write(start, keys[start:stop])
            shard.sync()
        with ShardWriter(tmp_path / "keys.h5", rows, borders, resume=True) as shard:  # after a kill
            shard.write(rows.start + 5, keys[rows.start + 5 : rows.start + 10])
    writer.write(50 - count, np.zeros((2 * count, 8), np.float16))  # both lost what they wrote beside each other
    for number in range(2):
        restore_borders(tmp_path / f"{number}.h5", writer)
    writer.finish()
    np.testing.assert_array_equal(open_keys(tmp_path / "keys.h5"), keys)


def test_a_worker_waits_for_one_that_is_dying(tmp_path):
    first = FolderLock(tmp_path)
    first.__enter__()
    timer = threading.Timer(0.5, first.release)
    timer.start()
    with FolderLock(tmp_path, timeout=30) as second:
        assert second.path.read_text() == f"pid {os.getpid()}"
        with pytest.raises(KnnSeqError, match="Another process"), FolderLock(tmp_path, timeout=0.3):
            pass

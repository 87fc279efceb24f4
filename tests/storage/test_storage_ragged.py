from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knn_seq.errors import DamagedFile
from knn_seq.storage import Ragged, RaggedWriter, TextFile, TextWriter
from knn_seq.storage import ragged as ragged_module

INT32 = {"": np.int32}
sequences = st.lists(hnp.arrays(np.int32, st.integers(0, 6)), max_size=12)


def append(writer: RaggedWriter, *sequences) -> None:
    writer.extend((np.concatenate([*sequences, np.zeros(0, np.int32)]), [len(sequence) for sequence in sequences]))


def assert_same(ragged: Ragged, expected: list[np.ndarray]) -> None:
    assert len(ragged) == len(expected)
    for read, array in zip(ragged, expected, strict=True):
        np.testing.assert_array_equal(read, array, strict=True)


@settings(max_examples=30, deadline=None)
@given(sequences=sequences, data=st.data())
def test_round_trip(tmp_path_factory, sequences, data):
    path = tmp_path_factory.mktemp("ragged") / "values.h5"
    cut = data.draw(st.integers(0, len(sequences)))
    with RaggedWriter(path, INT32) as writer:
        append(writer, *sequences[:cut])
        append(writer, *sequences[cut:])
        assert writer.checkpoint() == {"": [len(sequences), sum(map(len, sequences))]}
        writer.finish()
    assert os.listdir(path.parent) == ["values.h5"]
    ragged = Ragged.open(path)
    assert_same(ragged, sequences)
    lengths = [len(sequence) for sequence in sequences]
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(sequences))] * 2)))
    assert ragged.lengths().tolist() == lengths
    assert ragged.lengths(start, stop).tolist() == lengths[start:stop]
    rows = [row for row, length in enumerate(lengths) for _ in range(length)]
    assert ragged.row_of(np.arange(-1, len(rows))).tolist() == [-1, *rows]
    with h5py.File(path) as file:
        assert set(file) == {"items", "offsets"}
        np.testing.assert_array_equal(file["offsets"], np.cumsum([0, *lengths]))
        np.testing.assert_array_equal(file["items"], np.concatenate([*sequences, np.zeros(0, np.int32)]))


@settings(max_examples=30, deadline=None)
@given(stored=sequences, lost=sequences, rest=sequences, closed=st.booleans(), buffer=st.sampled_from([1, 1 << 20]))
def test_what_follows_the_checkpoint_is_dropped(tmp_path_factory, stored, lost, rest, closed, buffer):
    path = tmp_path_factory.mktemp("ragged") / "values.h5"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged_module, "BUFFER_BYTES", buffer)  # 1: everything reaches the file at once
        writer = RaggedWriter(path, INT32)
        append(writer, *stored)
        lengths = writer.checkpoint()
        append(writer, *lost)
        if closed:
            writer.close()
    with RaggedWriter(path, INT32, lengths) as writer:
        assert not writer.finished
        append(writer, *rest)
        writer.finish()
    assert_same(Ragged.open(path), stored + rest)


def test_shapes_and_places():
    ragged = Ragged(np.arange(3), np.array([0, 0, 2, 2, 3]))
    assert ragged.row_of([[0, 1], [2, -1]]).tolist() == [[1, 1], [3, -1]]
    assert int(ragged.row_of(2)) == 3
    assert ragged[-1].tolist() == [2]
    for index in (4, -5):
        with pytest.raises(IndexError):
            ragged[index]


def test_lengths_must_fit(tmp_path):
    with RaggedWriter(tmp_path / "a.h5", INT32) as writer, pytest.raises(ValueError, match="add up to 3"):
        writer.extend(([1, 2], [3]))


def test_killed_after_the_final_file_was_named(tmp_path):
    """`finish` was killed while it removed the raw files: to resume is to be finished."""
    path = tmp_path / "values.h5"
    with RaggedWriter(path, INT32) as writer:
        append(writer, [1, 2, 3])
        lengths = writer.checkpoint()
        raw = {file: file.read_bytes() for file in tmp_path.iterdir()}
        writer.finish()
    leftover, content = raw.popitem()
    leftover.write_bytes(content)
    with RaggedWriter(path, INT32, lengths) as writer:
        assert writer.finished
        writer.finish()
    assert os.listdir(tmp_path) == ["values.h5"]
    assert_same(Ragged.open(path), [np.array([1, 2, 3], np.int32)])


def test_killed_before_the_raw_files_were_removed(tmp_path):
    path = tmp_path / "values.h5"
    with RaggedWriter(path, INT32) as writer:
        append(writer, [1, 2, 3])
        lengths = writer.checkpoint()
        raw = {file: file.read_bytes() for file in tmp_path.iterdir()}
        writer.finish()
    for file, content in raw.items():
        file.write_bytes(content)
    with RaggedWriter(path, INT32, lengths) as writer:
        append(writer, [4])
        writer.finish()
    assert_same(Ragged.open(path), [np.array([1, 2, 3], np.int32), np.array([4], np.int32)])


def test_raw_files_shorter_than_the_checkpoint(tmp_path):
    path = tmp_path / "values.h5"
    with RaggedWriter(path, INT32) as writer:
        append(writer, [1, 2, 3])
        lengths = writer.checkpoint()
    (shortened,) = tmp_path.glob("*items*")
    os.truncate(shortened, 4)
    with pytest.raises(DamagedFile, match="is damaged"):
        RaggedWriter(path, INT32, lengths)


@pytest.mark.parametrize(("name", "value"), [("offsets", [0, 2, 4]), ("offsets", [1, 2, 3])])
def test_offsets_that_do_not_fit(tmp_path, name, value):
    path = tmp_path / "a.h5"
    with RaggedWriter(path, INT32) as writer:
        append(writer, [1, 2])
        append(writer, [3])
        writer.finish()
    with h5py.File(path, "r+") as file:
        file[name][...] = value
    with pytest.raises(DamagedFile, match="offsets do not fit"):
        Ragged.open(path)


text = st.text(st.characters(codec="utf-8"), max_size=10)


@settings(max_examples=30, deadline=None)
@given(before=st.lists(st.tuples(text, text), max_size=6), after=st.lists(st.tuples(text, text), max_size=6))
def test_text_round_trip(tmp_path_factory, before, after):
    path: Path = tmp_path_factory.mktemp("text") / "corpus.h5"
    with TextWriter(path) as writer:
        writer.extend_texts(before)
        lengths = writer.checkpoint()
        writer.extend_texts([("lost", "perdido")])
    with TextWriter(path, lengths) as writer:
        writer.extend_texts(after)
        writer.finish()
    texts = TextFile(path)
    assert len(texts) == len(before + after)
    assert list(texts) == before + after
    with h5py.File(path) as file:
        assert file["target/items"][...].tobytes().decode() == "".join(target for _, target in before + after)


def test_text_sides_of_different_number(tmp_path):
    path = tmp_path / "corpus.h5"
    with RaggedWriter(path, {"source": np.uint8, "target": np.uint8}) as writer:
        writer.extend(([97], [1]), ([97, 98], [1, 1]))
        writer.finish()
    with pytest.raises(DamagedFile, match="1 sources, 2 targets"):
        TextFile(path)

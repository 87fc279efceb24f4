from __future__ import annotations

import os

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.storage import KeyWriter, open_keys

IDENTITY = {"model": "abc", "corpus": {"files": [1, 2]}}


def random_keys(rows: int, dimension: int, dtype) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, dimension)).astype(dtype)


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 5), max_size=10),
    dimension=st.integers(1, 9),
    dtype=st.sampled_from(["float16", "float32"]),
    data=st.data(),
)
def test_keys_written_in_any_order(tmp_path_factory, lengths, dimension, dtype, data):
    path = tmp_path_factory.mktemp("keys") / "keys.h5"
    ends = np.cumsum([0, *lengths])
    keys = random_keys(ends[-1], dimension, dtype)
    writer, progress = KeyWriter.open_or_create(path, keys.shape, dtype, IDENTITY)
    assert progress is None
    with writer:
        for row in data.draw(st.permutations(range(len(lengths)))):
            writer.write(ends[row], keys[ends[row] : ends[row + 1]].astype(np.float32))
        writer.finish()
    assert os.listdir(path.parent) == ["keys.h5"]
    np.testing.assert_array_equal(open_keys(path), keys, strict=True)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["keys"][...], keys, strict=True)


def test_resuming_after_a_checkpoint(tmp_path):
    path, keys = tmp_path / "keys.h5", random_keys(100, 4, np.float16)
    writer, _ = KeyWriter.open_or_create(path, keys.shape, "float16", IDENTITY)
    writer.write(0, keys[:30])
    writer.checkpoint({"batch": 3})
    writer.write(30, np.full((20, 4), 7))  # after the checkpoint: as good as never written
    writer.close()
    writer, progress = KeyWriter.open_or_create(path, keys.shape, "float16", IDENTITY)
    assert progress == {"batch": 3}
    assert not writer.finished
    writer.write(30, keys[30:])
    writer.finish()
    np.testing.assert_array_equal(open_keys(path), keys, strict=True)


def test_killed_after_the_final_file_was_named(tmp_path):
    path, keys = tmp_path / "keys.h5", random_keys(10, 4, np.float16)
    writer, _ = KeyWriter.open_or_create(path, keys.shape, "float16", IDENTITY)
    writer.write(0, keys)
    writer.checkpoint({"batch": 1})
    progress_file = (tmp_path / "keys.progress.json").read_bytes()
    writer.finish()
    (tmp_path / "keys.progress.json").write_bytes(progress_file)
    writer, _ = KeyWriter.open_or_create(path, keys.shape, "float16", IDENTITY)
    assert writer.finished
    writer.finish()
    assert os.listdir(tmp_path) == ["keys.h5"]
    np.testing.assert_array_equal(open_keys(path), keys, strict=True)


@pytest.mark.parametrize(
    ("shape", "dtype", "identity"),
    [((101, 4), "float16", IDENTITY), ((100, 4), "float32", IDENTITY), ((100, 4), "float16", {"model": "other"})],
)
def test_a_file_that_does_not_fit_is_replaced(tmp_path, shape, dtype, identity):
    path = tmp_path / "keys.h5"
    writer, _ = KeyWriter.open_or_create(path, (100, 4), "float16", IDENTITY)
    writer.checkpoint({"batch": 3})
    writer.close()
    writer, progress = KeyWriter.open_or_create(path, shape, dtype, identity)
    writer.close()
    assert progress is None
    assert not (tmp_path / "keys.progress.json").exists()
    with h5py.File(tmp_path / "keys.h5.partial") as file:
        assert (file["keys"].shape, file["keys"].dtype) == (shape, dtype)


def test_a_truncated_partial_file_is_replaced(tmp_path):
    path = tmp_path / "keys.h5"
    KeyWriter.open_or_create(path, (100, 4), "float16")[0].close()
    os.truncate(tmp_path / "keys.h5.partial", 700)
    writer, progress = KeyWriter.open_or_create(path, (100, 4), "float16")
    assert progress is None
    writer.write(0, np.ones((100, 4)))
    writer.finish()
    np.testing.assert_array_equal(open_keys(path), np.ones((100, 4)))


@pytest.mark.parametrize("value", [1e5, np.nan, -np.inf])
def test_keys_that_do_not_fit_the_dtype(tmp_path, value):
    writer, _ = KeyWriter.open_or_create(tmp_path / "keys.h5", (2, 2), "float16")
    with writer, pytest.raises(InvalidSetting, match="float16 cannot hold"):
        writer.write(0, np.array([[1, 2], [value, 3]], np.float32))


def test_a_file_without_keys(tmp_path):
    with h5py.File(tmp_path / "keys.h5", "w") as file:
        file["other"] = np.arange(3)
    with pytest.raises(DamagedFile, match="holds no keys"):
        open_keys(tmp_path / "keys.h5")

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knn_seq.errors import DamagedFile, NotFound
from knn_seq.storage.flat import ALIGNMENT, FlatWriter, create_flat, open_flat, read_extents

array = hnp.arrays(
    st.sampled_from([np.uint8, np.int32, np.int64, np.float16, np.float32]),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
)


def store(path: Path, arrays: dict[str, np.ndarray], **attributes) -> None:
    create_flat(path, {name: (array.shape, array.dtype) for name, array in arrays.items()}, attributes)
    with FlatWriter(path) as writer:
        for name, array in arrays.items():
            writer.write(name, 0, array)


@settings(max_examples=30, deadline=None)
@given(arrays=st.dictionaries(st.sampled_from(["a", "b", "c/d", "c/e", "f/g/h"]), array), data=st.data())
def test_round_trip_and_plain_h5py(tmp_path_factory, arrays, data):
    path = tmp_path_factory.mktemp("flat") / "a.h5"
    create_flat(path, {name: (array.shape, array.dtype) for name, array in arrays.items()}, {"what": "çã", "n": 3})
    with FlatWriter(path) as writer:
        for name, array in arrays.items():
            cut = data.draw(st.integers(0, len(array)))
            writer.write(name, cut, array[cut:])
            writer.write(name, 0, array[:cut])
    opened = open_flat(path)
    assert opened.keys() == arrays.keys()
    with h5py.File(path) as file:
        assert dict(file.attrs) == {"what": "çã", "n": 3} == read_extents(path)[1]
        for name, array in arrays.items():
            for read in (opened[name], file[name][...]):
                np.testing.assert_array_equal(read, array, strict=True)
            assert file[name].chunks is None
            assert (file[name].id.get_offset() or 0) % ALIGNMENT == 0


def test_maps_are_read_only(tmp_path):
    store(tmp_path / "a.h5", {"x": np.arange(5)})
    mapped = open_flat(tmp_path / "a.h5")["x"]
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1


def test_rows_that_do_not_fit(tmp_path):
    path = tmp_path / "a.h5"
    store(path, {"x": np.zeros((3, 2), np.float32), "y": np.arange(4)})
    with FlatWriter(path) as writer:
        for start, shape in [(-1, (1, 2)), (2, (2, 2)), (0, (1, 3)), (0, (2,))]:
            with pytest.raises(ValueError, match="do not fit"):
                writer.write("x", start, np.ones(shape))
    np.testing.assert_array_equal(open_flat(path)["x"], np.zeros((3, 2)))
    np.testing.assert_array_equal(open_flat(path)["y"], np.arange(4))


def test_space_is_reserved(tmp_path):
    path = tmp_path / "a.h5"
    create_flat(path, {"x": ((1 << 20,), np.int64)})
    assert os.stat(path).st_blocks * 512 >= 8 << 20


def test_files_of_others(tmp_path):
    path = tmp_path / "a.h5"
    with pytest.raises(NotFound, match=r"There is no file .*a\.h5"):
        open_flat(path)
    for content in (b"", b"not HDF5 at all" * 99):
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match=r"a\.h5 is damaged"):
            open_flat(path)
    for content in ({"data": np.arange(100), "chunks": (10,)}, {"data": "text"}, {"data": ["a", "bc"]}):
        with h5py.File(path, "w") as file:
            file.create_dataset("x", **content)
        with pytest.raises(DamagedFile, match="'x' is not a contiguous dataset of numbers"):
            open_flat(path)


def test_a_file_that_someone_holds_open(tmp_path):
    path = tmp_path / "a.h5"
    store(path, {"x": np.arange(5)})
    for locking in (True, False, "best-effort"):
        with h5py.File(path, locking=locking) as file:
            np.testing.assert_array_equal(open_flat(path)["x"], file["x"])


@settings(max_examples=25, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("flat") / "a.h5"
    store(path, {"x": np.arange(300), "y/z": np.arange(20)})
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(DamagedFile, match=r"a\.h5 is damaged"):
        open_flat(path)

from __future__ import annotations

import struct

import numpy as np
import pytest
from firefox_files import float_item, int8_item, marian_bytes, options_item
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knn_seq.errors import KnnSeqError
from knn_seq.models.firefox_network.marian_file import read_marian_file

FLOATS = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=5), elements=st.floats(-1e3, 1e3, width=32))
BYTES = hnp.arrays(np.int8, st.tuples(st.integers(1, 6), st.integers(1, 6)))
any_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)


@any_folder
@given(plain=FLOATS, matrix=BYTES, embedding=BYTES, multiplier=st.floats(0.25, 200, width=32))
def test_reader_gives_back_what_was_written(tmp_path, plain, matrix, embedding, multiplier):
    path = tmp_path / "model.bin"
    items = [
        float_item("bias", plain),
        int8_item("encoder_l1_ffn_W1", matrix, multiplier, transposed=True),
        ("encoder_l1_ffn_W1_QuantMultA", 0x404, (1, 1), struct.pack("<f", 3.0)),
        int8_item("Wemb", embedding, multiplier, transposed=False),
        ("Wemb_QuantMultA", 0x4101, (1, 1), b"\1"),
        options_item('dec-cell: ssru\ndim-vocabs:\n  - 5\n  - 5\ntransformer-preprocess: ""\n'),
    ]
    path.write_bytes(marian_bytes(items))
    file = read_marian_file(path)
    assert set(file.tensors) == {"bias", "encoder_l1_ffn_W1", "Wemb"}
    np.testing.assert_array_equal(file.tensors["bias"], plain)
    np.testing.assert_allclose(file.tensors["encoder_l1_ffn_W1"], matrix / multiplier, rtol=1e-6)
    np.testing.assert_allclose(file.tensors["Wemb"], embedding / multiplier, rtol=1e-6)
    assert all(tensor.dtype == np.float32 for tensor in file.tensors.values())
    assert file.options == {"dec-cell": "ssru", "dim-vocabs": "", "transformer-preprocess": ""}


GOOD = marian_bytes([float_item("a", np.ones((3, 4))), int8_item("b", np.ones((2, 2)), 4.0, transposed=True)])


@any_folder
@given(length=st.integers(0, len(GOOD) - 1))
def test_cut_file_is_refused(tmp_path, length):
    path = tmp_path / "cut.bin"
    path.write_bytes(GOOD[:length])
    with pytest.raises(KnnSeqError, match=r"cut\.bin is cut short or damaged"):
        read_marian_file(path)


@any_folder
@given(data=st.binary(max_size=300), version=st.sampled_from([b"", struct.pack("<Q", 1)]))
def test_foreign_bytes_are_refused_in_one_sentence(tmp_path, data, version):
    path = tmp_path / "foreign.bin"
    path.write_bytes(version + data)
    if data[:8] == bytes(8) and version:
        return  # by chance a file with nothing in it
    with pytest.raises(KnnSeqError, match=r"foreign\.bin"):
        read_marian_file(path)


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, a=np.ones(500))
    with pytest.raises(KnnSeqError, match="not a Marian binary model file"):
        read_marian_file(path)


def test_unknown_type_names_the_tensor(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(marian_bytes([("encoder_l1_self_Wq", 0x402, (2, 2), bytes(8))]))
    with pytest.raises(KnnSeqError, match=r"'encoder_l1_self_Wq' has the type 0x402"):
        read_marian_file(path)


def test_missing_file(tmp_path):
    with pytest.raises(KnnSeqError, match=r"Cannot read the model file .*nothing\.bin: No such file"):
        read_marian_file(tmp_path / "nothing.bin")

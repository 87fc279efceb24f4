"""The index that is the reference for the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search_index import exact, vectors

from knn_seq.errors import KnnSeqError
from knn_seq.index import torch as torch_index
from knn_seq.index.torch import TorchIndex
from knn_seq.settings import DISTANCE_METRICS

DIMENSION = 24


def build(keys, metric="l2", ids=None, **options):
    index = TorchIndex(keys.shape[1], metric, device="cpu", **options)
    index.add(keys, ids)
    return index


@settings(max_examples=150, deadline=None)
@given(
    entries=st.integers(1, 300),
    queries=st.integers(1, 20),
    dimension=st.integers(1, 12),
    k=st.integers(1, 60),
    metric=st.sampled_from(["l2", "ip"]),
    block=st.sampled_from([1, 7, 64, 1 << 16]),
    seed=st.integers(0, 1000),
)
def test_equally_near_ones_come_by_id(entries, queries, dimension, k, metric, block, seed):
    # Small whole numbers: most distances occur many times, and all of them are exact.
    random = np.random.default_rng(seed)
    keys, asked = (random.integers(-1, 2, (count, dimension)).astype(np.float32) for count in (entries, queries))
    k = min(k, entries)
    shuffled = random.permutation(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_index, "BLOCK", block)
        patch.setattr(torch_index, "BLOCK_VALUES", 50)
        distances, ids = build(keys[shuffled], metric, shuffled).search(asked, k)
    expected, expected_ids = exact(keys, asked, k, metric)
    assert np.array_equal(distances, expected)
    assert np.array_equal(ids, expected_ids)


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize("offset", [0, 30])
def test_batches_change_nothing(metric, offset):
    pool = vectors(40) + np.float32(offset)
    keys = pool[np.random.default_rng(2).integers(40, size=900)]  # more in one place than there are spare candidates
    queries = vectors(33, seed=1) + np.float32(offset)
    index = build(keys, metric)
    together = index.search(queries, 10)
    one_by_one = [index.search(query[None], 10) for query in queries]
    assert all(
        torch.equal(torch.cat(part), all_) for part, all_ in zip(zip(*one_by_one, strict=True), together, strict=True)
    )
    assert all((np.diff(row)[np.diff(near) == 0] > 0).all() for near, row in zip(*together, strict=True))


def test_what_a_product_cannot_tell_apart_is_found():
    # Around 1e4 a product in float32 is off by much more than the squares of these distances.
    keys = np.concatenate([vectors(300), 0.01 * vectors(100, seed=1)]) + np.float32(1e4)
    queries = keys[300:]
    index = build(np.concatenate([-keys, keys]))  # so that the centre is the origin
    expected, ids = exact(keys, queries, 5, "l2")
    found = index.search(queries, 5)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-4)
    assert np.array_equal(found.ids - 400, ids)


@pytest.fixture
def far():
    """Keys in two far places, so that a coarse product cannot rank those of one, and queries."""
    keys = vectors(1000, 64) + np.float32(100)
    return build(np.concatenate([-keys, keys])), vectors(40, 64, seed=1) + np.float32(100)


@pytest.mark.parametrize(("precision", "dtype"), [("high", torch.float16), ("medium", torch.bfloat16)])
def test_a_coarser_product_changes_nothing(far, monkeypatch, precision, dtype):
    index, queries = far
    expected, product = index.search(queries, 20), torch.addmm

    def coarse(added, left, right, alpha):
        """What GPUs make of it: factors with the digits of a shorter type."""
        return product(added, left.to(dtype).float(), right.to(dtype).float(), alpha=alpha)

    monkeypatch.setattr(torch, "addmm", coarse)
    torch.set_float32_matmul_precision(precision)
    try:
        assert all(map(torch.equal, index.search(queries, 20), expected))
    finally:
        torch.set_float32_matmul_precision("highest")


def test_autocast_changes_nothing(far):
    index, queries = far
    expected = index.search(queries, 20)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, index.search(queries, 20), expected))


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_the_memory_has_the_distances_of_the_rounded_keys(metric, dtype, tmp_path):
    keys, queries = torch.from_numpy(vectors(500)), vectors(20, seed=1)
    if metric == "cosine":
        keys = torch.nn.functional.normalize(keys, dim=1)
    rounded = keys.to(getattr(torch, dtype))
    index = build(keys, metric, dtype=dtype)
    index.save(tmp_path)
    expected, ids = exact(rounded.double().numpy(), queries, 10, metric)
    for made in (index, TorchIndex.load(tmp_path)):
        found = made.search(queries, 10)
        # The length of a rounded key is not quite one.
        np.testing.assert_allclose(found.distances, expected, rtol=1e-5, atol=1e-3 if metric == "cosine" else 1e-5)
        assert (found.ids.numpy() == ids).mean() > (0.9 if metric == "cosine" else 0.99)
        assert made.memory == 500 * (2 * DIMENSION + 8 + 4)


def test_the_dtype_may_change_when_loading(tmp_path):
    keys, queries = vectors(100).astype(np.float16), vectors(5, seed=1)
    index = build(keys)
    index.save(tmp_path)
    loaded = TorchIndex.load(tmp_path, dtype="float16")
    assert loaded.memory < index.memory
    assert all(map(torch.equal, loaded.search(queries, 7), index.search(queries, 7)))


def test_keys_stay_in_the_file_until_they_are_needed(tmp_path):
    build(vectors(100)).save(tmp_path)
    loaded = TorchIndex.load(tmp_path)
    with (tmp_path / "index.torch").open("r+b") as file:
        file.seek(-4, 2)
        file.write(np.float32(77).tobytes())
    assert loaded._blocks[-1].keys[-1, -1] == 77


def test_removing_leaves_the_file(tmp_path):
    build(vectors(100)).save(tmp_path)
    before = (tmp_path / "index.torch").read_bytes()
    loaded = TorchIndex.load(tmp_path)
    loaded.remove(np.arange(50))
    loaded.add(vectors(9), np.arange(9))
    assert (tmp_path / "index.torch").read_bytes() == before


def test_adding_one_by_one_copies_each_key_a_few_times(monkeypatch):
    copied, join = [], torch.cat

    def counted(tensors, *args, **options):
        copied.append(sum(map(len, tensors)))
        return join(tensors, *args, **options)

    monkeypatch.setattr(torch_index.torch, "cat", counted)
    index, keys = TorchIndex(DIMENSION, device="cpu"), vectors(1000)
    for key in keys:
        index.add(key[None])
    assert sum(copied) / 3 <= 1000 * 10  # three tensors, ten halvings
    assert len(index._blocks) <= 10
    assert torch.equal(index.search(keys, 1).ids.squeeze(1), torch.arange(1000))


@pytest.mark.parametrize("ids", [[5, 6, 5], [5, 3, 6]])
def test_an_id_is_given_once(ids):
    index = build(vectors(4))
    with pytest.raises(KnnSeqError, match="id is given twice"):
        index.add(vectors(3), np.array(ids))
    assert len(index) == 4


def test_entries_after_a_removal_need_new_ids():
    index = build(vectors(4))
    index.remove(np.array([0]))
    with pytest.raises(KnnSeqError, match="keys that are added now need ids"):
        index.add(vectors(1))


def test_too_large_keys_are_refused():
    index = TorchIndex(DIMENSION, device="cpu", dtype="float16")
    with pytest.raises(KnnSeqError, match="too large values for float16"):
        index.add(np.full((1, DIMENSION), 1e5, np.float32))
    assert len(index) == 0


@pytest.mark.parametrize("device", ["gpu", "cpu:x", "cuda:99"])
def test_an_unknown_device_is_named(device):
    with pytest.raises(KnnSeqError, match=f"no device '{device}'"):
        TorchIndex(DIMENSION, device=device)


def test_a_device_is_described_by_its_name():
    assert TorchIndex(DIMENSION, device="cpu").describe()["options"]["device"] == "cpu"
    assert TorchIndex(DIMENSION).describe()["options"]["device"] is None


@pytest.mark.parametrize(
    ("settings", "sentence"), [({"dtype": "int8"}, "stored as 'int8'"), ({"recipe": "IVF4,Flat"}, "recipe 'IVF4,Flat'")]
)
def test_unknown_settings_are_named(settings, sentence):
    with pytest.raises(KnnSeqError, match=sentence):
        TorchIndex(DIMENSION, **settings)


def test_entries_are_gathered_without_waiting_as_they_are_with(monkeypatch):
    monkeypatch.setattr(torch_index, "BLOCK", 16)
    index = TorchIndex(DIMENSION, device="cpu")
    for keys in np.split(vectors(50, seed=3), [11, 30]):
        index.add(keys)
    assert len(index._blocks) > 1
    rows = torch.randint(50, (200,), generator=torch.Generator().manual_seed(0))
    expected = [index._gather(part, rows) for part in range(3)]
    index.device = torch.device("meta")  # any but a CPU
    assert all(torch.equal(index._gather(part, rows), found) for part, found in enumerate(expected))

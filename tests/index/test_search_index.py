"""What every index promises, tried on the exact one."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import UserError
from knn_seq.index import INDEXES, METRICS, base
from knn_seq.index.faiss import FaissIndex

DIMENSION = 24


def exact(keys, queries, k, metric):
    """All distances in double precision, sorted: slow, and plainly right."""
    keys, queries = np.asarray(keys, np.float64), np.asarray(queries, np.float64)
    if metric == "l2":
        distances = ((queries[:, None] - keys[None]) ** 2).sum(axis=2)
    elif metric == "ip":
        distances = -queries @ keys.T
    else:
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(keys, axis=1)
        distances = 1 - queries @ keys.T / lengths
    ids = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, ids, axis=1), ids


def vectors(count, dimension=DIMENSION, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def flat(count=100, metric="l2", **options):
    index = FaissIndex(DIMENSION, metric, "Flat", **options)
    index.add(vectors(count))
    return index


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("queries", [2, 300], ids=["one by one", "by matrix product"])
@pytest.mark.parametrize(
    "kind", ["float32 array", "float16 array", "float32 tensor", "float16 tensor", "bfloat16 tensor"]
)
def test_flat_equals_the_reference(metric, queries, kind):
    dtype, container = kind.split()
    keys = torch.from_numpy(vectors(500)).to(getattr(torch, dtype))
    asked = torch.from_numpy(vectors(queries, seed=1)).to(getattr(torch, dtype))
    index = FaissIndex(DIMENSION, metric)
    given_keys, given_queries = (keys.numpy(), asked.numpy()) if container == "array" else (keys, asked)
    index.add(given_keys)
    distances, ids = index.search(given_queries, 10)
    expected, expected_ids = exact(keys.double().numpy(), asked.double().numpy(), 10, metric)
    assert distances.dtype == torch.float32
    assert ids.dtype == torch.int64
    np.testing.assert_allclose(distances.numpy(), expected, atol=1e-4)
    assert (ids.numpy() == expected_ids).mean() > 0.999


@pytest.mark.parametrize("metric", METRICS)
def test_flat_is_exact_far_from_the_origin(metric):
    # A matrix product loses the small differences of long vectors: 1e-7 of the square of their length.
    keys = vectors(500) + 30
    queries = keys[:200] + 0.01 * vectors(200, seed=2)
    index = FaissIndex(DIMENSION, metric)
    index.add(keys)
    expected, _ = exact(keys, queries, 5, metric)
    np.testing.assert_allclose(index.search(queries, 5).distances.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_tensors_with_gradients_and_steps_are_taken():
    keys = torch.from_numpy(vectors(200, 2 * DIMENSION))[::2, ::2].requires_grad_()
    index = FaissIndex(DIMENSION)
    index.add(keys)
    result = index.search(keys[:5], 1)
    assert result.ids.squeeze(1).tolist() == [0, 1, 2, 3, 4]
    assert not result.distances.requires_grad


@settings(max_examples=60, deadline=None)
@given(
    entries=st.integers(0, 70),
    queries=st.integers(0, 12),
    k=st.integers(1, 80),
    metric=st.sampled_from(METRICS),
    recipe=st.sampled_from(["Flat", "IVF4,Flat", "HNSW8", "SQ8"]),
    nprobe=st.integers(1, 6),
)
def test_rows_are_sorted_unique_and_filled_up(entries, queries, k, metric, recipe, nprobe):
    entries = entries if entries >= 4 else 0  # or four lists cannot be trained
    keys = vectors(entries, seed=entries)
    index = FaissIndex.build(keys, recipe, metric, nprobe=nprobe)
    distances, ids = index.search(vectors(queries, seed=queries), k)
    assert distances.shape == ids.shape == (queries, k)
    assert torch.equal(ids == -1, distances.isinf())
    assert (ids >= -1).all()
    assert (ids < entries).all()
    if recipe == "Flat":
        assert ((ids >= 0).sum(dim=1) == min(k, entries)).all()
    for row, found in zip(distances, ids, strict=True):
        real = found[found >= 0]
        assert len(set(real.tolist())) == len(real)
        assert (row[:-1] <= row[1:]).all()
        assert (found[len(real) :] == -1).all()  # nothing after a gap


def test_an_empty_index_finds_nothing():
    distances, ids = FaissIndex(DIMENSION, recipe="IVF16,PQ8").search(vectors(3), 4)
    assert ids.tolist() == [[-1] * 4] * 3
    assert distances.isinf().all()


def test_added_entries_are_numbered_on():
    keys = vectors(90)
    index = FaissIndex(DIMENSION)
    index.add(keys[:50])
    index.add(keys[50:])
    assert len(index) == 90
    assert index.search(keys, 1).ids.squeeze(1).tolist() == list(range(90))


def test_chunks_change_nothing(monkeypatch):
    keys, queries = vectors(90), vectors(7, seed=1)
    whole = flat(90).search(queries, 9)
    monkeypatch.setattr(base, "CHUNK_BYTES", 4 * DIMENSION * 20)
    steps = []
    index = FaissIndex.build(keys, "Flat", on_progress=steps.append)
    assert steps == [20, 20, 20, 20, 10]
    assert all(map(torch.equal, index.search(queries, 9), whole))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("metric", METRICS)
def test_a_query_must_be_finite(value, metric):
    queries = vectors(3)
    queries[1, 5] = value
    with pytest.raises(UserError, match="query in row 1 has a value that is not a finite number"):
        flat(metric=metric).search(queries, 2)


def test_a_key_must_be_finite():
    keys = vectors(30)
    keys[20, 0] = np.inf
    index = flat()
    with pytest.raises(UserError, match="key in row 20"):
        index.add(keys)


@pytest.mark.parametrize("shape", [(3, DIMENSION + 1), (DIMENSION,), (2, 3, DIMENSION)])
@pytest.mark.parametrize("method", ["train", "add", "search"])
def test_vectors_must_have_the_dimension(shape, method):
    arguments = (np.zeros(shape, np.float32), 2) if method == "search" else (np.zeros(shape, np.float32),)
    with pytest.raises(UserError, match=f"vectors of dimension {DIMENSION}"):
        getattr(flat(), method)(*arguments)


@pytest.mark.parametrize("k", [0, -3])
def test_k_must_be_positive(k):
    with pytest.raises(UserError, match="k must be at least 1"):
        flat().search(vectors(1), k)


def test_unknown_metrics_and_options_are_named():
    with pytest.raises(UserError, match="no metric 'manhattan': choose from l2, ip, cosine"):
        FaissIndex(DIMENSION, "manhattan")
    with pytest.raises(UserError, match="no option 'nprob': it has nprobe"):
        FaissIndex(DIMENSION, nprob=3)


@pytest.mark.parametrize("ids", [[1, 2], [-1, 0, 1]])
def test_ids_must_fit_the_keys(ids):
    with pytest.raises(UserError, match="3 keys need as many ids"):
        flat().add(vectors(3), np.array(ids))


def test_removing_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="cannot remove entries"):
        flat().remove(np.array([1]))


@pytest.mark.parametrize("metric", METRICS)
def test_a_saved_index_is_the_same(tmp_path, metric):
    index = flat(300, metric)
    index.save(tmp_path / "new" / "folder")
    loaded = FaissIndex.load(tmp_path / "new" / "folder")
    assert loaded.describe() == index.describe()
    assert all(map(torch.equal, loaded.search(vectors(9, seed=3), 12), index.search(vectors(9, seed=3), 12)))


def test_saving_replaces_and_leaves_nothing_beside(tmp_path):
    flat(300).save(tmp_path)
    flat(40).save(tmp_path)
    assert len(FaissIndex.load(tmp_path)) == 40
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.faiss", "index.json"]


def test_the_description_is_plain_json():
    index = flat(300)
    assert json.loads(json.dumps(index.describe())) == {
        "recipe": "Flat",
        "metric": "l2",
        "dimension": DIMENSION,
        "options": {"nprobe": 32, "ef_search": 128, "refine_factor": 4},
        "entries": 300,
        "memory": 300 * DIMENSION * 4,
    }


@pytest.mark.parametrize("kept", [0, 10, -1])
def test_a_truncated_file_is_refused(tmp_path, kept):
    flat().save(tmp_path)
    path = tmp_path / "index.faiss"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"index\.faiss is damaged"):
        FaissIndex.load(tmp_path)


@pytest.mark.parametrize("missing", ["index.faiss", "index.json"])
def test_a_missing_file_is_named(tmp_path, missing):
    flat().save(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(UserError, match=missing):
        FaissIndex.load(tmp_path)


@pytest.mark.parametrize("text", ["[1]", "{}", '{"bytes": 3}'])
def test_a_broken_description_is_refused(tmp_path, text):
    flat().save(tmp_path)
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(UserError, match=r"index\.json does not describe an index"):
        FaissIndex.load(tmp_path)


@pytest.mark.parametrize("entries", [10, 10_000])  # less than a file's buffer, and more
def test_a_full_disk_leaves_the_old_index(tmp_path, entries):
    flat(5).save(tmp_path)
    index, limits = flat(entries), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))
    try:
        with pytest.raises(UserError, match="disk is full"):
            index.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(FaissIndex.load(tmp_path)) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.faiss", "index.json"]


def test_a_kill_between_the_two_files_leaves_no_wrong_description(tmp_path, monkeypatch):
    flat(50, "l2").save(tmp_path)

    def killed(path, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        flat(50, "ip").save(tmp_path)  # a file of the same size
    with pytest.raises(UserError, match="no whole index"):
        FaissIndex.load(tmp_path)


def test_the_registry_knows_faiss():
    assert INDEXES.get("faiss") is FaissIndex
    assert "faiss" in INDEXES.names()

"""What every index promises, tried on all there are."""

from __future__ import annotations

import json
import resource
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import KnnSeqError, NotEnoughMemory
from knn_seq.index import INDEXES, base
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.torch import TorchIndex
from knn_seq.index.usearch import UsearchIndex
from knn_seq.runtime import memory
from knn_seq.settings import DISTANCE_METRICS

DIMENSION = 24


class Kind(NamedTuple):
    """A way to build an index whose settings let it find everything among a few hundred keys."""

    cls: Any
    recipe: str | None
    options: dict[str, Any]

    def empty(self, metric="l2", dimension=DIMENSION, **options):
        return self.cls(dimension, metric, self.recipe, **self.options, **options)

    def build(self, keys, metric="l2"):
        return self.cls.build(keys, self.recipe, metric, **self.options)

    def filled(self, count=100, metric="l2"):
        return self.build(vectors(count), metric)


EXACT = {"faiss Flat": Kind(FaissIndex, "Flat", {}), "torch": Kind(TorchIndex, None, {"device": "cpu"})}
NAMED = {
    "faiss IDMap2,Flat": Kind(FaissIndex, "IDMap2,Flat", {}),
    "faiss IVF4,Flat": Kind(FaissIndex, "IVF4,Flat", {"nprobe": 4}),
    "faiss RR24,IVF4,Flat": Kind(FaissIndex, "RR24,IVF4,Flat", {"nprobe": 4}),
    "torch": EXACT["torch"],
    "usearch": Kind(UsearchIndex, "HNSW16,f32", {}),
}
KINDS = EXACT | NAMED


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    """Any index."""
    return request.param


@pytest.fixture(params=EXACT.values(), ids=EXACT.keys())
def exact_kind(request):
    """An index that compares a query with every key."""
    return request.param


@pytest.fixture(params=NAMED.values(), ids=NAMED.keys())
def named_kind(request):
    """An index whose entries may have any ids, and may be removed."""
    return request.param


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


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize("queries", [1, 2, 300], ids=["one", "one by one", "by matrix product"])
@pytest.mark.parametrize(
    "form", ["float32 array", "float16 array", "float32 tensor", "float16 tensor", "bfloat16 tensor"]
)
def test_it_equals_the_reference(kind, metric, queries, form):
    dtype, container = form.split()
    keys = torch.from_numpy(vectors(500)).to(getattr(torch, dtype))
    asked = torch.from_numpy(vectors(queries, seed=1)).to(getattr(torch, dtype))
    index = kind.empty(metric)
    given_keys, given_queries = (keys.numpy(), asked.numpy()) if container == "array" else (keys, asked)
    index.train(given_keys)
    index.add(given_keys)
    distances, ids = index.search(given_queries, 10)
    expected, expected_ids = exact(keys.double().numpy(), asked.double().numpy(), 10, metric)
    assert distances.dtype == torch.float32
    assert ids.dtype == torch.int64
    np.testing.assert_allclose(distances.numpy(), expected, atol=1e-4)
    assert (ids.numpy() == expected_ids).mean() > 0.999


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
def test_exact_search_is_exact_far_from_the_origin(exact_kind, metric):
    # A matrix product loses the small differences of long vectors: 1e-7 of the square of their length.
    keys = vectors(500) + 30
    queries = keys[:200] + 0.01 * vectors(200, seed=2)
    index = exact_kind.build(keys, metric)
    expected, _ = exact(keys, queries, 5, metric)
    np.testing.assert_allclose(index.search(queries, 5).distances.numpy(), expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    entries=st.integers(1, 400),
    different=st.integers(1, 400),
    queries=st.integers(1, 30),
    dimension=st.integers(1, 40),
    k=st.integers(1, 150),
    metric=st.sampled_from(DISTANCE_METRICS),
    offset=st.sampled_from([0, 20]),
    seed=st.integers(0, 1000),
)
def test_flat_and_torch_find_the_same(entries, different, queries, dimension, k, metric, offset, seed):
    # Keys and queries out of one small set: many lie in one place, or are equally near.
    random = np.random.default_rng(seed)
    pool = vectors(different, dimension, seed) + np.float32(offset)
    keys, asked = pool[random.integers(different, size=entries)], pool[random.integers(different, size=queries)]
    k = min(k, entries)
    flat, reference = (EXACT[name].build(keys, metric).search(asked, k) for name in ("faiss Flat", "torch"))
    # An inner product may be a small difference of large numbers.
    slack = 1e-6 * dimension * float((pool**2).max()) if metric == "ip" else 1e-6
    np.testing.assert_allclose(flat.distances, reference.distances, rtol=1e-5, atol=slack)
    # Among equally near ones any is right.
    all_distances, order = exact(keys, asked, entries, metric)
    by_id = np.take_along_axis(all_distances, np.argsort(order, axis=1), axis=1)
    for distances, ids in (flat, reference):
        np.testing.assert_allclose(np.take_along_axis(by_id, ids.numpy(), axis=1), distances, rtol=1e-5, atol=slack)
    gaps = np.diff(reference.distances, axis=1)
    apart = np.pad(gaps > 1e-4 + 3 * slack, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
    alone = apart[:, :-1] & apart[:, 1:]
    assert np.array_equal(flat.ids.numpy()[alone], reference.ids.numpy()[alone])


def test_tensors_with_gradients_and_steps_are_taken(kind):
    keys = torch.from_numpy(vectors(200, 2 * DIMENSION))[::2, ::2].requires_grad_()
    index = kind.empty()
    index.train(keys)
    index.add(keys)
    result = index.search(keys[:5], 1)
    assert result.ids.squeeze(1).tolist() == [0, 1, 2, 3, 4]
    assert not result.distances.requires_grad


@settings(max_examples=60, deadline=None)
@given(
    entries=st.integers(0, 70),
    queries=st.integers(0, 12),
    k=st.integers(1, 80),
    metric=st.sampled_from(DISTANCE_METRICS),
    name=st.sampled_from(["faiss", "torch", "usearch"]),
    recipe=st.sampled_from(["Flat", "IVF4,Flat", "HNSW8", "SQ8"]),
    nprobe=st.integers(1, 6),
)
def test_rows_are_sorted_unique_and_filled_up(entries, queries, k, metric, name, recipe, nprobe):
    entries = entries if entries >= 4 else 0  # or four lists cannot be trained
    keys = vectors(entries, seed=entries)
    if name == "faiss":
        index = FaissIndex.build(keys, recipe, metric, nprobe=nprobe)
    else:
        index = INDEXES.get(name).build(keys, None, metric)
    distances, ids = index.search(vectors(queries, seed=queries), k)
    assert distances.shape == ids.shape == (queries, k)
    assert torch.equal(ids == -1, distances.isinf())
    assert (ids >= -1).all()
    assert (ids < entries).all()
    if index.recipe == "Flat":
        assert ((ids >= 0).sum(dim=1) == min(k, entries)).all()
    for row, found in zip(distances, ids, strict=True):
        real = found[found >= 0]
        assert len(set(real.tolist())) == len(real)
        assert (row[:-1] <= row[1:]).all()
        assert (found[len(real) :] == -1).all()  # nothing after a gap


def test_an_empty_index_finds_nothing(kind, tmp_path):
    index = kind.empty()
    index.save(tmp_path)
    for empty in (index, kind.cls.load(tmp_path)):
        distances, ids = empty.search(vectors(3), 4)
        assert ids.tolist() == [[-1] * 4] * 3
        assert distances.isinf().all()


def test_no_queries_find_nothing(kind):
    assert kind.filled().search(vectors(0), 4).ids.shape == (0, 4)


@pytest.mark.parametrize("queries", [1, 3])
def test_what_is_missing_beyond_the_entries_has_no_id(kind, queries):
    distances, ids = kind.filled(10).search(vectors(queries, seed=1), 13)
    assert [sorted(row) for row in ids[:, :10].tolist()] == [list(range(10))] * queries
    assert ids[:, 10:].tolist() == [[-1] * 3] * queries
    assert distances[:, :10].isfinite().all()
    assert (distances[:, 10:] == torch.inf).all()


def test_added_entries_are_numbered_on(kind):
    keys = vectors(90)
    index = kind.empty()
    index.train(keys)
    index.add(keys[:50])
    index.add(keys[50:])
    assert len(index) == 90
    assert index.search(keys, 1).ids.squeeze(1).tolist() == list(range(90))


def test_chunks_change_nothing(exact_kind, monkeypatch):
    keys, queries = vectors(90), vectors(7, seed=1)
    complete = exact_kind.build(keys).search(queries, 9)
    monkeypatch.setattr(base, "CHUNK_BYTES", 4 * DIMENSION * 20)
    steps = []
    index = exact_kind.cls.build(keys, "Flat", on_progress=steps.append)
    assert steps == [20, 20, 20, 20, 10]
    assert all(map(torch.equal, index.search(queries, 9), complete))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("metric", DISTANCE_METRICS)
def test_a_query_must_be_finite(kind, value, metric):
    queries = vectors(3)
    queries[1, 5] = value
    with pytest.raises(KnnSeqError, match="query in row 1 has a value that is not a finite number"):
        kind.filled(metric=metric).search(queries, 2)


def test_a_key_must_be_finite(kind):
    keys = vectors(30)
    keys[20, 0] = np.nan
    index = kind.filled()
    with pytest.raises(KnnSeqError, match="key in row 20"):
        index.add(keys)
    assert len(index) == 100


@pytest.mark.parametrize("shape", [(3, DIMENSION + 1), (DIMENSION,), (2, 3, DIMENSION)])
@pytest.mark.parametrize("method", ["train", "add", "search"])
def test_vectors_must_have_the_dimension(kind, shape, method):
    arguments = (np.zeros(shape, np.float32), 2) if method == "search" else (np.zeros(shape, np.float32),)
    with pytest.raises(KnnSeqError, match=f"vectors of dimension {DIMENSION}"):
        getattr(kind.empty(), method)(*arguments)


@pytest.mark.parametrize("k", [0, -3])
def test_k_must_be_positive(kind, k):
    with pytest.raises(KnnSeqError, match="k must be at least 1"):
        kind.filled().search(vectors(1), k)


def test_unknown_metrics_and_options_are_named(kind):
    with pytest.raises(KnnSeqError, match="no metric 'manhattan': choose from l2, ip, cosine"):
        kind.empty("manhattan")
    known = ", ".join(kind.cls.declared_options)
    with pytest.raises(KnnSeqError, match=f"no option 'nprob': it has {known}"):
        kind.empty(nprob=3)


@pytest.mark.parametrize("ids", [[1, 2], [-1, 0, 1]])
def test_ids_must_fit_the_keys(kind, ids):
    with pytest.raises(KnnSeqError, match="3 keys need as many ids"):
        kind.filled().add(vectors(3), np.array(ids))


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize("form", [np.array, torch.tensor])
def test_entries_may_have_any_ids(named_kind, metric, form):
    keys = vectors(150)
    index = named_kind.build(keys[:100], metric)
    ids = form([*range(7000, 7040), 2**40, *range(200, 209)])
    index.add(keys[100:], ids)
    assert len(index) == 150
    numbers = np.concatenate([np.arange(100), np.asarray(ids)])
    _, rows = exact(keys, keys, 1, metric)
    assert index.search(keys, 1).ids.squeeze(1).tolist() == numbers[rows[:, 0]].tolist()


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("queries", [1, 40])
def test_removed_entries_are_not_found_and_the_others_keep_their_ids(named_kind, saved, queries, tmp_path):
    keys, asked = vectors(300), vectors(queries, seed=4)
    index = named_kind.build(keys)
    gone = np.random.default_rng(1).choice(300, 120, replace=False)
    assert index.remove(gone) == 120
    if saved:
        index.save(tmp_path)
        index = named_kind.cls.load(tmp_path)
    kept = np.setdiff1d(np.arange(300), gone)
    assert len(index) == 180
    expected, rows = exact(keys[kept], asked, 12, "l2")
    distances, ids = index.search(asked, 12)
    np.testing.assert_allclose(distances, expected, rtol=1e-4)
    assert ids.tolist() == kept[rows].tolist()
    assert (index.search(asked, 200).ids >= 0).sum() == 180 * queries


def test_removed_ids_may_be_given_again(named_kind):
    keys = vectors(100)
    index = named_kind.build(keys)
    index.remove(torch.tensor([17, 50]))
    index.add(keys[[50, 17]], np.array([17, 50]))
    assert index.search(keys[[17, 50]], 1).ids.tolist() == [[50], [17]]
    assert len(index) == 100


def test_ids_that_are_not_there_are_ignored(named_kind):
    index = named_kind.filled(50)
    assert index.remove(np.array([3, 3, 9999, -1])) == 1
    assert index.remove(np.array([3])) == 0
    assert index.remove(np.array([], np.int64)) == 0
    assert len(index) == 49


def test_all_entries_may_be_removed(named_kind):
    index = named_kind.filled(50)
    assert index.remove(torch.arange(50)) == 50
    assert (index.search(vectors(2), 3).ids == -1).all()
    index.add(vectors(3), np.arange(3))
    assert index.search(vectors(3), 1).ids.tolist() == [[0], [1], [2]]


@pytest.mark.parametrize("ids", [[1.0], [True], [[1]]])
def test_only_ids_are_removed(kind, ids):
    with pytest.raises(KnnSeqError, match="must be whole numbers in one row"):
        kind.filled().remove(np.array(ids))


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
def test_a_saved_index_is_the_same(kind, tmp_path, metric):
    index = kind.filled(300, metric)
    index.save(tmp_path / "new" / "folder")
    loaded = kind.cls.load(tmp_path / "new" / "folder")
    assert loaded.describe() == index.describe()
    assert all(map(torch.equal, loaded.search(vectors(9, seed=3), 12), index.search(vectors(9, seed=3), 12)))
    loaded.add(vectors(1) + 9)
    assert loaded.search(vectors(1) + 9, 1).ids.tolist() == [[300]]


def test_saving_replaces_and_leaves_nothing_beside(kind, tmp_path):
    kind.filled(300).save(tmp_path)
    kind.filled(40).save(tmp_path)
    assert len(kind.cls.load(tmp_path)) == 40
    assert {path.name for path in tmp_path.iterdir()} == {kind.cls.file_name, "index.json"}


def test_an_index_may_be_saved_where_it_was_loaded(kind, tmp_path):
    kind.filled(300).save(tmp_path)
    index = kind.cls.load(tmp_path)
    before = index.search(vectors(9, seed=3), 12)
    index.save(tmp_path)
    for again in (index, kind.cls.load(tmp_path)):
        assert all(map(torch.equal, again.search(vectors(9, seed=3), 12), before))


def test_a_description_is_plain_json(kind):
    description = kind.filled(300).describe()
    assert json.loads(json.dumps(description)) == description
    assert description["entries"] == 300
    assert description["memory"] >= 300 * DIMENSION * 4


def test_the_description_of_faiss():
    index = EXACT["faiss Flat"].filled(300)
    assert json.loads(json.dumps(index.describe())) == {
        "recipe": "Flat",
        "metric": "l2",
        "dimension": DIMENSION,
        "options": {"nprobe": None, "probe_ratio": None, "ef_search": 128, "refine_factor": 5, "device": None},
        "entries": 300,
        "memory": 300 * DIMENSION * 4,
        "removed": False,
    }


@pytest.mark.parametrize("kept", [0, 10, -1])
def test_a_truncated_file_is_refused(kind, tmp_path, kept):
    kind.filled().save(tmp_path)
    path = tmp_path / kind.cls.file_name
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(KnnSeqError, match=f"{kind.cls.file_name} is damaged"):
        kind.cls.load(tmp_path)


def replace(folder, name, data):
    """Other bytes in a file, and a description that fits their number."""
    (folder / name).write_bytes(data)
    description = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**description, "bytes": len(data)}))


@pytest.mark.parametrize("kept", [0, 10, 300, 2000, -1])
def test_the_library_notices_a_truncated_file_too(kind, tmp_path, kept):
    kind.filled().save(tmp_path)
    name = kind.cls.file_name
    replace(tmp_path, name, (tmp_path / name).read_bytes()[:kept])
    with pytest.raises(KnnSeqError, match=name):
        kind.cls.load(tmp_path)


@pytest.mark.parametrize("text", [b"x", b"[1]   ", b"{}    ", b"\x00"])
def test_a_file_of_something_else_is_refused(kind, tmp_path, text):
    kind.filled().save(tmp_path)
    replace(tmp_path, kind.cls.file_name, text * 3000)
    with pytest.raises(KnnSeqError, match=kind.cls.file_name):
        kind.cls.load(tmp_path)


def test_a_file_of_another_dimension_is_refused(kind, tmp_path):
    name = kind.cls.file_name
    kind.filled().save(tmp_path)
    kind.build(vectors(100, 16)).save(tmp_path / "narrow")
    replace(tmp_path, name, (tmp_path / "narrow" / name).read_bytes())
    with pytest.raises(KnnSeqError, match=f"{name} .*dimension"):
        kind.cls.load(tmp_path)


@pytest.mark.parametrize("missing", ["index", "description"])
def test_a_missing_file_is_named(kind, tmp_path, missing):
    kind.filled().save(tmp_path)
    name = kind.cls.file_name if missing == "index" else "index.json"
    (tmp_path / name).unlink()
    with pytest.raises(KnnSeqError, match=name):
        kind.cls.load(tmp_path)


@pytest.mark.parametrize("text", ["[1]", "{}", '{"bytes": 3}'])
def test_a_broken_description_is_refused(kind, tmp_path, text):
    kind.filled().save(tmp_path)
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(KnnSeqError, match=r"index\.json does not describe an index"):
        kind.cls.load(tmp_path)


@pytest.mark.parametrize("entries", [10, 10_000])  # less than a file's buffer, and more
def test_a_full_disk_leaves_the_old_index(kind, tmp_path, entries):
    kind.filled(5).save(tmp_path)
    index, limits = kind.filled(entries), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))
    try:
        with pytest.raises(KnnSeqError, match="disk is full"):
            index.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(kind.cls.load(tmp_path)) == 5
    assert {path.name for path in tmp_path.iterdir()} == {kind.cls.file_name, "index.json"}


def test_a_kill_between_the_two_files_leaves_no_wrong_description(kind, tmp_path, monkeypatch):
    kind.filled(50, "l2").save(tmp_path)

    def killed(path, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        kind.filled(50, "ip").save(tmp_path)  # a file of the same size
    with pytest.raises(KnnSeqError, match="no complete index"):
        kind.cls.load(tmp_path)


def test_the_registry_knows_them_all(kind):
    name = kind.cls.file_name.removeprefix("index.")
    assert INDEXES.get(name) is kind.cls
    assert name in INDEXES.names()


@pytest.mark.parametrize("kind", ["faiss", "torch"])
def test_an_index_that_does_not_fit_into_memory_is_refused_before_it_is_loaded(kind, tmp_path, monkeypatch):
    INDEXES.get(kind).build(vectors(200, 8), "Flat", "l2").save(tmp_path)
    bound = memory.MemoryBound("this small machine", 1000, "take another", of_addresses=True)
    monkeypatch.setattr(memory, "memory_bounds", lambda root: iter([bound]))
    monkeypatch.setattr(memory, "_meminfo", lambda root: {})
    with pytest.raises(NotEnoughMemory, match=r"The index in .* needs at least .* and this small machine leaves 1 KB"):
        INDEXES.get(kind).load(tmp_path)

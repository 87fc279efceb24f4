"""What torch learns and encodes for faiss: as good as faiss's own, and readable by plain faiss."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from knn_seq.index.faiss import FaissIndex, faiss
from knn_seq.index.faiss_library import assignment, gpu, training
from knn_seq.index.faiss_library.adding import TorchAdder
from knn_seq.index.faiss_library.layers import layers
from knn_seq.index.faiss_library.training import train

DIMENSION = 32
RECIPES = ["IVF32,PQ8x6", "IVF32,PQ16x4fs", "PCA16,IVF32,PQ8", "OPQ8,IVF32_HNSW8,PQ8x4", "PCA16,IVF32,PQ8x4fs"]


@pytest.fixture(scope="module")
def keys():
    random = np.random.default_rng(0)
    mixing = random.standard_normal((DIMENSION, DIMENSION)) * np.arange(1, DIMENSION + 1) ** -0.5
    centres = 2 * random.standard_normal((60, DIMENSION))
    points = centres[random.integers(60, size=10_000)] + random.standard_normal((10_000, DIMENSION))
    return (points @ mixing.T).astype(np.float32)


def recall(index, keys) -> float:
    flat = faiss.IndexFlat(DIMENSION, index.metric_type)
    flat.add(keys)
    ivf = faiss.extract_index_ivf(index)
    ivf.nprobe = 8
    exact, found = flat.search(keys[::20], 16)[1], index.search(keys[::20], 16)[1]
    return float(np.mean([len(set(a) & set(b)) / 16 for a, b in zip(exact, found, strict=True)]))


def in_torch(index, keys, monkeypatch) -> None:
    """As it is done on an accelerator, but here."""
    monkeypatch.setattr(training, "product_dtype", lambda *_: torch.float32)
    train(index, torch.from_numpy(keys), "cpu", codebooks_in_torch=True)


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [(recipe, faiss.METRIC_L2) for recipe in RECIPES]
    + [(recipe, faiss.METRIC_INNER_PRODUCT) for recipe in RECIPES if "PCA" not in recipe],
)
def test_what_torch_learns_finds_as_many_neighbours(recipe, kind, keys, monkeypatch, tmp_path):
    ours, theirs = (faiss.index_factory(DIMENSION, recipe, kind) for _ in range(2))
    in_torch(ours, keys, monkeypatch)
    for layer in layers(theirs):
        if hasattr(layer, "do_polysemous_training"):
            layer.do_polysemous_training = False  # it has no effect on what is found
    theirs.train(keys)
    ours.add(keys)
    theirs.add(keys)
    faiss.write_index(ours, str(tmp_path / "plain.faiss"))
    assert recall(faiss.read_index(str(tmp_path / "plain.faiss")), keys) >= 0.98 * recall(theirs, keys)


@pytest.mark.parametrize("encodes", [False, True])
@pytest.mark.parametrize("recipe", [*RECIPES, "IVF32,SQ8", "IVF32,Flat", "IVF300,PQ8x4"])
def test_torch_adds_what_faiss_adds(recipe, encodes, keys):
    index = FaissIndex(DIMENSION, recipe=recipe, nprobe=4)
    index.train(keys)
    index.add(keys)
    wanted = index.search(keys[:300], 8)
    index.clear()
    assert len(index) == 0
    index._adder_chosen, index._adder = True, TorchAdder(index.index, torch.device("cpu"), torch.float32, encodes)
    for start in range(0, len(keys), 3000):
        index.add(keys[start : start + 3000])
    found = index.search(keys[:300], 8)
    assert len(index) == len(keys)
    assert (found.ids == wanted.ids).float().mean() > 0.99
    assert torch.allclose(found.distances[:, 0], wanted.distances[:, 0], rtol=0.02, atol=0.2)


def test_torch_continues_adding_after_a_search(keys):
    index = FaissIndex(DIMENSION, recipe="IVF32,PQ16x4fs")
    index.train(keys)
    index._adder_chosen, index._adder = True, TorchAdder(index.index, torch.device("cpu"), torch.float32, True)
    index.add(keys[:5000])
    assert index.search(keys[:1], 5).ids.max() < 5000
    index.add(keys[5000:9000])
    assert len(index) == 9000
    assert index.search(keys[5000:6000], 1).ids.max() > 5000


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [("IVF32,PQ8", True), ("IVF32,PQ16x4fs", False), ("HNSW8", False), ("L2norm,IVF32,PQ8", False)],
)
def test_torch_takes_over_where_it_is_faster_and_can(recipe, expected, keys, monkeypatch):
    monkeypatch.setattr("knn_seq.index.faiss_library.adding.fastest", lambda methods: list(methods)[1])
    monkeypatch.setattr("knn_seq.index.faiss_library.adding.TRIAL_WORK", 0)
    index = FaissIndex(DIMENSION, recipe=recipe)
    index.train(keys)
    assert (TorchAdder.for_index(index.index, "cpu", torch.from_numpy(keys)) is not None) == expected
    index.add(keys)
    assert len(index) == len(keys)


def test_the_fastest_method_is_chosen(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(assignment.time, "perf_counter", lambda: clock[0])

    def lasting(seconds):
        return lambda: clock.__setitem__(0, clock[0] + seconds)

    others = {"short": lasting(1.0), "long": lasting(2.0)}
    assert assignment.fastest({"default": lasting(2.0), **others}) == "short"
    assert assignment.fastest({"default": lasting(1.0), **others}) == "default"
    assert assignment.fastest({"default": lasting(1.01), **others}) == "default"  # not clearly faster


def test_opq_before_codes_finds_more_than_codes_alone(keys):
    plain, rotated = (FaissIndex.build(keys, recipe) for recipe in ("IVF32,PQ4", "OPQ4,IVF32,PQ4"))
    assert recall(rotated.index, keys) > recall(plain.index, keys)


def test_without_gpus_an_index_stays_where_it_is():
    assert gpu.GpuIndex.of(faiss.IndexFlatL2(4)) is None


def test_with_gpus_an_index_is_divided_among_them(monkeypatch):
    """No GPU here: this only shows that the calls are made, and that a refusal is not fatal."""
    copies, probes = [], []

    def all_gpus(index, options):
        if isinstance(index, faiss.IndexHNSW):
            raise RuntimeError("not implemented")
        copies.append((options.shard, options.useFloat16))
        return index

    library = SimpleNamespace(
        StandardGpuResources=object,
        get_num_gpus=lambda: 2,
        GpuMultipleClonerOptions=SimpleNamespace,
        GpuParameterSpace=lambda: SimpleNamespace(set_index_parameter=lambda *given: probes.append(given[1:])),
        index_cpu_to_all_gpus=all_gpus,
    )
    monkeypatch.setattr(gpu, "faiss", library)
    assert gpu.GpuIndex.of(faiss.IndexHNSWFlat(4, 8)) is None
    index = FaissIndex.build(np.eye(4, dtype=np.float32), "IVF2,Flat", nprobe=1)
    index.search(np.eye(4, dtype=np.float32), 1)
    assert index.search(np.eye(4, dtype=np.float32), 1, {"nprobe": 9}).ids.shape == (4, 1)
    assert copies == [(True, True)]
    assert probes == [("nprobe", 1), ("nprobe", 2)]

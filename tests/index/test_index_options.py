"""Options belong to the index, and a search with other ones changes nothing in it."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from knn_seq import Translator
from knn_seq.build.index import add_index
from knn_seq.errors import InvalidSetting
from knn_seq.index import INDEXES, SearchIndex
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library.layers import layers
from knn_seq.settings import BuildSettings

DIMENSION = 16
RECIPES = (
    "IVF64,Flat",
    "IVF64,PQ8",
    "IVF64,SQ8",
    "IVF64,PQ8x4fs",
    "IVF64_HNSW8,PQ8x4fs",
    "PCA8,IVF64_HNSW8,SQ8",
    "IDMap2,IVF64,Flat",
    "IDMap2,HNSW8",
    "PCA8,HNSW8",
    "HNSW8",
    "IVF64,PQ8x4fs,Refine(SQ8)",
    "HNSW8_SQ4,Refine(Flat)",
    "IVF64,PQ8x4fs,Refine(keys)",
    "OPQ4_8,IVF64_HNSW8,PQ4x4fs,Refine(keys)",
)
OPTIONS = (
    {"nprobe": 1, "ef_search": 8, "refine_factor": 1},
    {"nprobe": 9, "ef_search": 40, "refine_factor": 3},
    {"nprobe": 20, "ef_search": 30, "probe_ratio": 1.4},
    {"nprobe": 64, "probe_ratio": 3.0},
    {"nprobe": 1000, "ef_search": 300, "refine_factor": 50},
)


def clustered(count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(1).standard_normal((80, DIMENSION))
    return (centres[random.integers(80, size=count)] + random.standard_normal((count, DIMENSION))).astype(np.float32)


def settings_of(index: FaissIndex) -> list[tuple[object, ...]]:
    """What the layers of an index of faiss are set to."""
    found = []
    for layer in layers(index.index):
        graph = getattr(layer, "hnsw", None)
        found.append((getattr(layer, "nprobe", None), getattr(layer, "k_factor", None), graph and graph.efSearch))
    return found


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_search_with_options_is_that_of_an_index_opened_with_them(recipe, tmp_path):
    keys, queries = clustered(3000), clustered(40, seed=2)
    index = FaissIndex.build(keys, recipe)
    index.save(tmp_path)
    default, before = index.search(queries, 10), settings_of(index)
    for options in OPTIONS:
        opened = FaissIndex.load(tmp_path, **options)
        if opened.needs_keys:
            opened.attach_keys(keys)
        ours, theirs = index.search(queries, 10, options), opened.search(queries, 10)
        assert all(map(torch.equal, ours, theirs)), options
        assert settings_of(index) == before
    assert all(map(torch.equal, index.search(queries, 10), default))


@pytest.mark.parametrize(("kind", "recipe"), [("faiss", "IVF64,Flat"), ("usearch", "HNSW8,f32")])
def test_searches_with_different_options_run_at_a_time(kind, recipe):
    keys, queries = clustered(3000), clustered(20, seed=2)
    index = INDEXES.get(kind).build(keys, recipe)
    name = "nprobe" if kind == "faiss" else "ef_search"
    work = [{name: number % 5 + 1} for number in range(40)]
    one_by_one = [index.search(queries, 10, options) for options in work]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(lambda options: index.search(queries, 10, options), work))
    for first, second in zip(one_by_one, at_once, strict=True):
        assert torch.equal(first.ids, second.ids)


@pytest.mark.parametrize("recipe", ["shards:3xIVF64,Flat", "shards:2xusearch:HNSW2,i8"])
def test_shards_pass_options_on(recipe):
    keys, queries = clustered(3000), clustered(60, seed=2)
    kind, _, inner = recipe.partition(":")
    index, exact = (
        INDEXES.get(name).build(keys, recipe, "cosine") for name, recipe in ((kind, inner), ("torch", None))
    )
    nearest = exact.search(queries, 10).ids
    name = "ef_search" if "usearch" in recipe else "nprobe"

    def recall(value: int) -> float:
        found = index.search(queries, 10, {name: value}).ids
        return (found[:, :, None] == nearest[:, None]).any(1).float().mean().item()

    assert recall(1) < recall(64)
    with pytest.raises(InvalidSetting, match="has no option 'nprobes'"):
        index.search(queries, 1, {"nprobes": 1})


def test_options_are_checked():
    index = FaissIndex.build(clustered(300), "IVF4,Flat")
    queries = clustered(2)
    assert torch.equal(index.search(queries, 3, {"nprobe": "4"}).ids, index.search(queries, 3, {"nprobe": 4}).ids)
    assert torch.equal(index.search(queries, 3, {"nprobe": None}).ids, index.search(queries, 3).ids)
    for options, sentence in (
        ({"nprobe": 0}, "The index 'faiss' takes as its option 'nprobe' a whole number from 1 on, not 0"),
        ({"nprobes": 1}, "The index 'faiss' has no option 'nprobes': it has nprobe, probe_ratio"),
        ({"device": "cpu"}, "The index 'faiss' takes the option 'device' only when it is built"),
    ):
        with pytest.raises(InvalidSetting, match=sentence):
            index.search(queries, 1, options)


def test_a_translator_opens_an_index_once_whatever_it_is_searched_with(number_store, tmp_path, monkeypatch):
    path = shutil.copytree(number_store.path, tmp_path / "store")
    add_index(path, BuildSettings(index_recipe="IVF32,Flat"), "lists", as_default=True)
    opened, load = [], SearchIndex.load.__func__
    monkeypatch.setattr(
        SearchIndex, "load", classmethod(lambda cls, *given, **named: opened.append(cls) or load(cls, *given, **named))
    )
    translator = Translator(path, beam_size=2, k=16, weight=0.9, temperature=1000.0, index_options={"nprobe": 1})
    sources = [f"{number} {number + 3} {number + 5} {number}" for number in range(5, 30)]
    few, all_lists = (translator.translate(sources, index_options={"nprobe": lists}) for lists in (1, 32))
    assert opened == [FaissIndex]
    assert [each.tokens for each in few] != [each.tokens for each in all_lists]
    exact = Translator(number_store, beam_size=2, k=16, weight=0.9, temperature=1000.0)
    assert [each.tokens for each in exact.translate(sources)] == [each.tokens for each in all_lists]

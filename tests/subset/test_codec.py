"""Codes of keys, and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from knn_seq.errors import KnnSeqError
from knn_seq.subset.codec import KeyCodec, default_codes

RECIPES = ["PQ8", "PQ8x8", "PQ16x4", "PQ7x4", "PCA16,PQ8x4", "OPQ8,PQ8", "OPQ8_16,PQ8x4fs"]


def some_keys(count=800, dimension=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dimension, generator=generator) @ torch.randn(dimension, dimension, generator=generator)


def trained(recipe, metric="l2", keys=None):
    keys = some_keys(dimension=28 if "PQ7" in recipe else 32) if keys is None else keys
    codec = KeyCodec(keys.shape[1], metric, recipe)
    codec.train(keys)
    return codec, keys


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_code_stands_for_its_nearest_centroids(recipe, metric):
    codec, keys = trained(recipe, metric)
    codes = codec.encode(keys)
    assert codes.shape == (len(keys), codec.bytes)
    assert codes.dtype == np.uint8
    decoded, moved = codec.decode(torch.from_numpy(codes)), codec.transform(keys)
    pq = codec.quantized.pq
    centroids = codec._quantizer(torch.device("cpu")).centroids
    for part in range(pq.M):
        places = slice(part * pq.dsub, (part + 1) * pq.dsub)
        best = torch.cdist(moved[:, places], centroids[part]).square().amin(dim=1)
        chosen = (moved[:, places] - decoded[:, places]).square().sum(dim=1)
        torch.testing.assert_close(chosen, best, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("recipe", RECIPES)
def test_torch_encodes_as_faiss_does(recipe):
    codec, keys = trained(recipe)
    agreeing = (codec.encode(keys) == codec.encode_in_torch(keys)).mean()
    assert agreeing > 0.995  # the rest lies between two centroids that are equally near


@pytest.mark.parametrize("recipe", ["PQ8", "PQ16x4", "PQ7x4"])
def test_decoding_is_that_of_faiss(recipe):
    codec, keys = trained(recipe)
    codes = codec.encode(keys)
    np.testing.assert_allclose(codec.decode(torch.from_numpy(codes)).numpy(), codec.index.sa_decode(codes), atol=1e-5)


def test_what_was_learned_is_saved(tmp_path):
    codec, keys = trained("OPQ8,PQ8")
    codec.save(tmp_path / "codec.faiss")
    other = KeyCodec(32, "l2", "OPQ8,PQ8")
    other.load(tmp_path / "codec.faiss")
    np.testing.assert_array_equal(other.encode(keys), codec.encode(keys))


def test_codes_of_another_recipe_and_damage_are_refused(tmp_path):
    trained("PQ8")[0].save(tmp_path / "codec.faiss")
    with pytest.raises(KnnSeqError, match="not of codes 'PQ16'"):
        KeyCodec(32, "l2", "PQ16").load(tmp_path / "codec.faiss")
    (tmp_path / "codec.faiss").write_bytes(b"nonsense")
    with pytest.raises(KnnSeqError, match="missing or damaged"):
        KeyCodec(32, "l2", "PQ8").load(tmp_path / "codec.faiss")


@pytest.mark.parametrize(
    ("recipe", "metric", "reason"),
    [
        ("IVF16,PQ8", "l2", "no codes 'IVF16,PQ8'"),
        ("PQ", "l2", "no codes 'PQ'"),
        ("PQ5", "l2", "cannot be divided"),
        ("PCA16,PQ8", "ip", "inner products are lost"),
    ],
)
def test_unfit_recipes_are_refused(recipe, metric, reason):
    with pytest.raises(KnnSeqError, match=reason):
        KeyCodec(32, metric, recipe)


def test_too_few_keys_are_told():
    with pytest.raises(KnnSeqError, match="at least 256 keys, not 100"):
        KeyCodec(32, "l2", "PQ8").train(some_keys(100))


@pytest.mark.parametrize("dimension", [32, 63, 64, 128, 130, 256, 512, 1024])
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_the_default_fits_every_dimension(dimension, metric):
    recipe = default_codes(5_000, dimension, metric)
    if recipe != "Flat":
        KeyCodec(dimension, metric, recipe.removesuffix(",Refine(keys)"))
    assert (recipe == "Flat") == bool(dimension % 2)
    assert default_codes(500, dimension, metric) == "Flat"

from __future__ import annotations

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA as ReferencePCA

from knn_seq.errors import KnnSeqError
from knn_seq.quantize import OPQ, PCA, ProductQuantizer, kmeans, nearest_centroids
from knn_seq.quantize import nearest as nearest_module


def clustered(count: int = 6000, dimension: int = 32, seed: int = 0) -> torch.Tensor:
    """Clusters whose directions are correlated, as those of hidden states are."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dimension, dimension, generator=generator) * torch.arange(1, dimension + 1) ** -0.7
    centres = 2 * torch.randn(60, dimension, generator=generator)
    points = centres[torch.randint(60, (count,), generator=generator)]
    return (points + torch.randn(count, dimension, generator=generator)) @ mixing.T


def error(quantizer: ProductQuantizer, points: torch.Tensor) -> float:
    """The mean squared distance between points and what their codes stand for."""
    return (quantizer.decode(quantizer.encode(points)) - points).square().sum(1).mean().item()


def mean_error(points: torch.Tensor, centroids: torch.Tensor) -> float:
    return torch.cdist(points.double(), centroids.double()).min(1).values.square().mean().item()


@given(
    st.integers(1, 3), st.integers(1, 40), st.integers(1, 300), st.integers(1, 9), st.booleans(), st.integers(0, 1000)
)
def test_nearest_centroids_are_those_of_a_slow_search(groups, count, clusters, dimension, inner_product, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(groups, count, dimension, generator=generator)
    centroids = torch.randn(groups, clusters, dimension, generator=generator)
    found = nearest_centroids(points, centroids, inner_product)
    if inner_product:
        reference = -(points.double() @ centroids.double().transpose(1, 2))
    else:
        reference = (points[:, :, None].double() - centroids[:, None].double()).square().sum(3)
    lowest = reference.min(2).values
    chosen = reference.gather(2, found.centroids[:, :, None])[:, :, 0]
    assert torch.allclose(chosen, lowest, rtol=1e-4, atol=1e-4)
    assert torch.allclose(found.distances.double(), lowest, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("clusters", [16, 300])
def test_blocks_do_not_change_what_is_nearest(monkeypatch, clusters):
    points, centroids = torch.randn(2, 500, 6), torch.randn(2, clusters, 6)
    whole = nearest_centroids(points, centroids)
    monkeypatch.setattr(nearest_module, "BLOCK_BYTES", {"cpu": 8 * clusters * 7})
    blocked = nearest_centroids(points, centroids)
    assert torch.equal(whole.centroids, blocked.centroids)


def test_kmeans_is_as_good_as_that_of_faiss():
    points = clustered(20_000)
    reference = faiss.Kmeans(32, 128, niter=10, seed=1)
    reference.train(points.numpy())
    ours, theirs = kmeans(points, 128), torch.from_numpy(reference.centroids)
    assert mean_error(points, ours) <= 1.02 * mean_error(points, theirs)


def test_kmeans_of_many_groups_is_kmeans_of_each():
    points = clustered(2000)
    groups = torch.stack([points, 3 * points + 1])
    together = kmeans(groups, 20, start=groups[:, :20])
    for group, found in zip(groups, together, strict=True):
        assert torch.allclose(found, kmeans(group, 20, start=group[:20]), rtol=1e-3, atol=1e-3)


def test_seeds_find_clusters_that_lie_apart():
    centres = 100 * torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
    points = centres.repeat(40, 1) + torch.randn(2000, 8, generator=torch.Generator().manual_seed(2))
    uniform = points[torch.randperm(2000, generator=torch.Generator().manual_seed(3))[:50]]
    drawn = mean_error(points, kmeans(points, 50))
    assert drawn < 0.3 * mean_error(points, kmeans(points, 50, start=uniform))


def test_a_centroid_that_nothing_is_near_is_moved():
    points = torch.cat([torch.zeros(50, 2), torch.full((50, 2), 10.0), torch.full((1, 2), 99.0)])
    start = torch.tensor([[0.0, 0.0], [1000.0, 1000.0], [2000.0, 2000.0]])
    found = kmeans(points, 3, iterations=5, start=start)
    assert mean_error(points, found) == pytest.approx(0, abs=1e-6)


def test_as_many_clusters_as_points_and_equal_points():
    points = torch.ones(7, 3)
    assert kmeans(points, 7).shape == (7, 3)
    assert torch.equal(kmeans(points, 1), points[:1])
    with pytest.raises(KnnSeqError, match="7 points cannot be divided into 8 clusters"):
        kmeans(points, 8)


def test_spherical_centroids_have_length_one_and_follow_directions():
    directions = torch.eye(4)
    lengths = torch.rand(400, 1, generator=torch.Generator().manual_seed(0)) * 9 + 1
    points = directions.repeat(100, 1) * lengths
    found = kmeans(points, 4, spherical=True)
    assert torch.allclose(found.norm(dim=1), torch.ones(4))
    assert torch.equal(found.sort(0).values, directions.sort(0).values)


def test_half_precision_products_find_centroids_about_as_good():
    points = clustered(6000)
    rough = kmeans(points, 64, dtype=torch.bfloat16)
    assert mean_error(points, rough) <= 1.02 * mean_error(points, kmeans(points, 64))


@pytest.mark.parametrize("bits", [4, 8])
def test_product_quantizer_is_as_good_as_that_of_faiss(bits):
    points = clustered(12_000)
    reference = faiss.ProductQuantizer(32, 8, bits)
    reference.train(points.numpy())
    theirs = ((reference.decode(reference.compute_codes(points.numpy())) - points.numpy()) ** 2).sum(1).mean()
    ours = ProductQuantizer.train(points, 8, bits)
    assert error(ours, points) <= 1.02 * theirs
    decoded = ours.decode(ours.encode(points))
    assert (decoded - points).square().sum(1).mean().item() == pytest.approx(error(ours, points), rel=1e-3)


def test_codes_are_those_that_faiss_computes_with_the_same_codebooks():
    points = clustered(3000)
    ours = ProductQuantizer.train(points, 8)
    theirs = faiss.ProductQuantizer(32, 8, 8)
    faiss.copy_array_to_vector(ours.centroids.numpy().ravel(), theirs.centroids)
    agreeing = ours.encode(points).numpy() == theirs.compute_codes(points.numpy())
    assert agreeing.mean() > 0.999


def test_subspaces_must_divide_the_dimension():
    with pytest.raises(KnnSeqError, match="5 subspaces do not divide the dimension 32"):
        ProductQuantizer.train(clustered(300), 5)


@pytest.mark.parametrize("dimension", [None, 16])
def test_opq_loses_less_than_pq(dimension):
    points = clustered(6000)
    opq = OPQ.train(points, 8, dimension, bits=4)
    size = dimension or 32
    assert torch.allclose(opq.rotation @ opq.rotation.T, torch.eye(size), atol=1e-4)
    rotated = points @ opq.rotation.T
    restored = opq.quantizer.decode(opq.quantizer.encode(rotated)) @ opq.rotation
    lost = (restored - points).square().sum(1).mean().item()
    assert lost < 0.95 * error(ProductQuantizer.train(points, 8, 4), points)


def test_opq_is_as_good_as_that_of_faiss():
    points = clustered(6000)
    reference = faiss.OPQMatrix(32, 8)
    reference.pq = faiss.ProductQuantizer(32, 8, 4)
    reference.train(points.numpy())
    rotated = torch.from_numpy(reference.apply(points.numpy()))
    theirs = error(ProductQuantizer.train(rotated, 8, 4), rotated)
    ours = OPQ.train(points, 8, bits=4)
    assert error(ours.quantizer, points @ ours.rotation.T) <= 1.02 * theirs


def test_pca_is_that_of_scikit_learn_up_to_sign():
    points = clustered(2000) + 5
    ours, theirs = PCA.train(points), ReferencePCA().fit(points.double().numpy())
    assert np.allclose(ours.variances, theirs.explained_variance_, rtol=1e-3, atol=1e-5)
    agreement = np.abs((ours.directions.double().numpy() * theirs.components_).sum(1))
    assert np.allclose(agreement[:16], 1, atol=1e-4)
    expected = np.abs(theirs.transform(points.double().numpy()))[:, :8]
    assert np.allclose(((points - ours.mean) @ ours.directions[:8].T).abs().numpy(), expected, atol=1e-3)


def test_pca_needs_two_vectors():
    with pytest.raises(KnnSeqError, match="at least 2"):
        PCA.train(torch.ones(1, 3))

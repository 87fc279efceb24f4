"""What an index of faiss has to learn, learned by torch or by faiss, whichever is faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.assignment import centroids_of, device_for, product_dtype
from knn_seq.index.faiss_library.layers import inverted_lists, layers
from knn_seq.index.faiss_library.parallel import one_thread
from knn_seq.quantize import OPQ, PCA, ProductQuantizer, kmeans, nearest_centroids

# Small clusterings are thousands of loops of a millisecond.  Threads gain little there, and on busy cores they wait for
# each other in every loop.  Counted in points times centroids.
SMALL_TRAINING = 100_000_000
CODEBOOK_ITERATIONS = 10  # of 8-bit codes, which take the time; faiss's 25 lower the error by little
ROTATION_POINTS = 16_384  # enough for a rotation
ROTATION_BITS = 4  # small codebooks find about the same rotation, in a fraction of the time


def least_sample(index: Any) -> int:
    """How many vectors an index needs at the least to be trained."""
    return max((centroids for _, centroids in _clusterings(index)), default=1)


def train(index: Any, sample: Tensor, device: str | None = None, codebooks_in_torch: bool | None = None) -> None:
    """Train an index of faiss.

    Args:
        index: Any.
        sample: (n, dimension), float32.
        device: Where torch computes; None: CUDA if there is, else the CPU.
        codebooks_in_torch: Whether torch learns PQ codebooks too; None: not on a CPU, where faiss is faster.
    """
    place = device_for(device)
    if codebooks_in_torch is None:
        codebooks_in_torch = place.type != "cpu"
    for layer in layers(index):
        if hasattr(layer, "do_polysemous_training"):
            # It sorts the centroids for a kind of search that is never used here, in most of the time.
            layer.do_polysemous_training = False
        if hasattr(layer, "pq") and layer.pq.nbits == 8:
            layer.pq.cp.niter = CODEBOOK_ITERATIONS
    points = _train_transforms(index, sample.to(place))
    ivf = inverted_lists(index)
    if ivf is not None and points is not None:
        _train_lists(ivf, points)
        if codebooks_in_torch:
            _train_codebooks(ivf, points)
    if not _is_trained(index):
        work = sum(times * min(len(sample), 256 * centroids) * centroids for times, centroids in _clusterings(index))
        with one_thread() if work < SMALL_TRAINING else nullcontext():
            index.train(_array(sample))  # it leaves alone what is trained already


def _train_transforms(index: Any, points: Tensor) -> Tensor | None:
    """Train PCA and OPQ; returns the transformed points, or None if there is a transform that torch does not know."""
    wrapper = faiss.downcast_index(index)
    if not isinstance(wrapper, faiss.IndexPreTransform):
        return points
    for i in range(wrapper.chain.size()):
        transform = faiss.downcast_VectorTransform(wrapper.chain.at(i))
        if isinstance(transform, faiss.PCAMatrix):
            _fill_pca(transform, PCA.train(points))
        elif isinstance(transform, faiss.OPQMatrix):
            chosen = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:ROTATION_POINTS]]
            bits = ROTATION_BITS if len(chosen) >= 1 << ROTATION_BITS else 1
            opq = OPQ.train(chosen, transform.M, transform.d_out, bits)
            faiss.copy_array_to_vector(opq.rotation.cpu().numpy().ravel(), transform.A)
            transform.is_trained = True
        elif not (isinstance(transform, faiss.LinearTransform) and transform.is_trained):
            return None
        points = apply_transform(transform, points)
    return points


def apply_transform(transform: Any, points: Tensor) -> Tensor:
    """What a linear transform of faiss makes of points, (n, dimension)."""
    matrix = torch.from_numpy(faiss.vector_to_array(transform.A)).view(transform.d_out, transform.d_in)
    moved = points @ matrix.to(points.device).T
    return moved + torch.from_numpy(faiss.vector_to_array(transform.b)).to(moved) if transform.have_bias else moved


def _fill_pca(transform: Any, pca: PCA) -> None:
    faiss.copy_array_to_vector(pca.mean.cpu().numpy(), transform.mean)
    faiss.copy_array_to_vector(pca.variances.cpu().numpy(), transform.eigenvalues)
    faiss.copy_array_to_vector(pca.directions.cpu().numpy().ravel(), transform.PCAMat)
    transform.prepare_Ab()
    transform.is_trained = True


def _train_lists(ivf: Any, points: Tensor) -> None:
    """Find the centroids of the lists in torch, where that is faster."""
    if len(points) < ivf.nlist or ivf.quantizer.ntotal:
        return
    dtype = product_dtype(points.device, len(points), ivf.nlist, ivf.d)
    if dtype is None:
        return
    spherical = ivf.metric_type == faiss.METRIC_INNER_PRODUCT
    ivf.quantizer.add(_array(kmeans(points, ivf.nlist, spherical=spherical, dtype=dtype)))


def _train_codebooks(ivf: Any, points: Tensor) -> None:
    if not hasattr(ivf, "pq") or ivf.quantizer.ntotal != ivf.nlist:
        return
    if ivf.by_residual:
        centroids = centroids_of(ivf).to(points)
        points = points - centroids[nearest_centroids(points, centroids).centroids]
    learned = ProductQuantizer.train(points, ivf.pq.M, ivf.pq.nbits)
    faiss.copy_array_to_vector(learned.centroids.cpu().numpy().ravel(), ivf.pq.centroids)
    ivf.is_trained = True
    if hasattr(ivf, "precompute_table"):
        ivf.precompute_table()


def _is_trained(index: Any) -> bool:
    """Whether nothing is left to learn; the wrappers around trained parts are told so."""
    wrapper = faiss.downcast_index(index)
    if isinstance(wrapper, faiss.IndexPreTransform):
        known = all(wrapper.chain.at(i).is_trained for i in range(wrapper.chain.size()))
        wrapper.is_trained = known and _is_trained(wrapper.index)
    return bool(wrapper.is_trained)


def _clusterings(index: Any) -> Iterator[tuple[int, int]]:
    """How many times training clusters keys, and into how many centroids."""
    for layer in layers(index):
        if isinstance(layer, faiss.IndexIVF):
            yield 1, layer.nlist
        if hasattr(layer, "pq"):
            yield layer.pq.M, layer.pq.ksub


def _array(vectors: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors.cpu().numpy())

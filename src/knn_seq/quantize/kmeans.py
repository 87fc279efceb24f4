from __future__ import annotations

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.quantize.nearest import nearest_centroids

ITERATIONS = 10
POINTS_PER_CLUSTER = 256  # more of them move no centroid by much
ROUND_SHARE = 4  # a round of seeding adds one centroid for so many there are
CONVERGED = 1e-4  # relative gain below which an iteration was the last


def kmeans(
    points: Tensor,
    clusters: int,
    iterations: int = ITERATIONS,
    seed: int = 0,
    spherical: bool = False,
    start: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Centroids of the points, for many groups at once.

    Args:
        points: (groups, n, dimension) or (n, dimension), on any device.
        clusters: How many centroids a group gets.
        iterations: At most; they end when one of them gains next to nothing.
        seed: Of the sample and the first centroids.
        spherical: Centroids of length one, assigned by inner product.
        start: (groups, clusters, dimension), centroids to begin with instead of drawn ones.
        dtype: Of the products of points and centroids.

    Returns:
        (groups, clusters, dimension) or (clusters, dimension), float32.
    """
    if points.ndim == 2:
        begin = None if start is None else start[None]
        return kmeans(points[None], clusters, iterations, seed, spherical, begin, dtype)[0]
    if not 1 <= clusters <= points.shape[1]:
        raise InvalidSetting(f"{points.shape[1]:,} points cannot be divided into {clusters:,} clusters.")
    generator = torch.Generator(points.device).manual_seed(seed)
    points = _sample(points, clusters * POINTS_PER_CLUSTER, generator).float()
    centroids = _seed(points, clusters, generator, dtype) if start is None else start.float()
    if spherical:
        centroids = torch.nn.functional.normalize(centroids, dim=2)
    before = torch.inf
    for _ in range(iterations):
        assigned, distances = nearest_centroids(points, centroids, spherical, dtype)
        centroids, counts = _means(points, assigned, clusters)
        _repair(centroids, counts, points, distances)
        if spherical:
            centroids = torch.nn.functional.normalize(centroids, dim=2)
        error = distances.mean(dtype=torch.float64).item()
        if before - error <= CONVERGED * abs(error):
            break
        before = error
    return centroids


def _sample(points: Tensor, size: int, generator: torch.Generator) -> Tensor:
    count = points.shape[1]
    if count <= size:
        return points
    chosen = torch.randperm(count, generator=generator, device=points.device)[:size]
    return points[:, chosen.sort().values]


def _seed(points: Tensor, clusters: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Centroids drawn as k-means++ draws them, far from those there are, but in rounds of many.

    All rounds together cost about one iteration; k-means++ itself takes a step for each centroid.
    """
    groups, count, _ = points.shape
    # The first centroids come out of the points' middle, not out of points: there is nothing yet to be far from.
    middle = points.mean(1, keepdim=True)
    distances = (points - middle).square().sum(2)  # (groups, n)
    chosen = points.new_empty(groups, 0, points.shape[2])
    while chosen.shape[1] < clusters:
        size = min(max(chosen.shape[1] // ROUND_SHARE, 1), clusters - chosen.shape[1])
        # The largest of weight / exponential are a draw without replacement by weight.
        luck = torch.empty(groups, count, device=points.device).exponential_(generator=generator)
        rows = (distances / luck).topk(size, dim=1).indices
        new = points.gather(1, rows[:, :, None].expand(-1, -1, points.shape[2]))
        chosen = torch.cat([chosen, new], 1)
        nearer = nearest_centroids(points, new, dtype=dtype).distances
        distances = nearer if chosen.shape[1] == 1 else torch.minimum(distances, nearer)
        distances.scatter_(1, rows, 0.0)  # exactly: a point is not drawn twice while others are away
    return chosen


def _means(points: Tensor, assigned: Tensor, clusters: int) -> tuple[Tensor, Tensor]:
    """Mean and number of the points that are assigned to each centroid: (groups, clusters, d), (groups, clusters)."""
    groups, _, dimension = points.shape
    cells = (assigned + clusters * torch.arange(groups, device=points.device)[:, None]).flatten()
    counts = torch.bincount(cells, minlength=groups * clusters)
    sums = points.new_zeros(groups * clusters, dimension).index_add_(0, cells, points.reshape(-1, dimension))
    means = sums / counts.clamp(min=1)[:, None]
    return means.view(groups, clusters, dimension), counts.view(groups, clusters)


def _repair(centroids: Tensor, counts: Tensor, points: Tensor, distances: Tensor) -> None:
    """Move centroids that nothing is assigned to, in place, to the points that are worst off."""
    empty = counts == 0
    most = int(empty.sum(1).max())
    if not most:
        return
    worst = distances.topk(most, dim=1).indices  # (groups, most)
    groups, numbers = empty.nonzero(as_tuple=True)
    order = empty.cumsum(1)[groups, numbers] - 1  # the first empty one of a group gets its worst point, and so on
    centroids[groups, numbers] = points[groups, worst[groups, order]]

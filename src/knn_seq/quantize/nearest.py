from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# Of scores between points and centroids that are held at a time.  A CPU wants them in its cache, a GPU wants work.
BLOCK_BYTES = {"cpu": 4 << 20}
OTHER_BLOCK_BYTES = 256 << 20
PACKED_CLUSTERS = 256  # up to here the number of a centroid fits into the last bits of a distance
PACKED_DIMENSION = 32  # up to here finding the minimum takes the time, beyond it the product


class Nearest(NamedTuple):
    """The nearest centroid of each point."""

    centroids: Tensor  # (groups, points) int64
    distances: Tensor  # (groups, points) float32: squared, or minus the inner product


def nearest_centroids(
    points: Tensor, centroids: Tensor, inner_product: bool = False, dtype: torch.dtype = torch.float32
) -> Nearest:
    """The centroid of its group that is nearest to each point, in blocks of bounded memory.

    Args:
        points: (groups, n, dimension) or (n, dimension).
        centroids: (groups, clusters, dimension) or (clusters, dimension), on the same device.
        inner_product: The nearest is the one with the largest inner product, not the smallest distance.
        dtype: Of the product; half precision is fast on GPUs, and wrong only between centroids that are about equally
            near.
    """
    if points.ndim == 2:
        found = nearest_centroids(points[None], centroids[None], inner_product, dtype)
        return Nearest(*(part[0] for part in found))
    groups, count, _ = points.shape
    numbers = torch.empty(groups, count, dtype=torch.int64, device=points.device)
    distances = torch.empty(groups, count, device=points.device)
    narrow = 1 < centroids.shape[1] <= PACKED_CLUSTERS and points.shape[2] <= PACKED_DIMENSION
    packed = points.device.type == "cpu" and not inner_product and narrow
    rows = _with_norms(centroids) if packed else centroids.to(dtype)
    half_norms = centroids.float().square().sum(2)[:, None] / 2  # (groups, 1, clusters)
    for block in blocks(count, groups * centroids.shape[1], points.device):
        some = points[:, block].float()
        if packed:
            numbers[:, block], lowest = _packed_minimum(some, rows)
        else:
            scores = torch.bmm(some.to(dtype), rows.transpose(1, 2)).float().neg_()
            # The minimum along rows that lie together: along columns torch takes several times as long.
            lowest, numbers[:, block] = (scores if inner_product else scores.add_(half_norms)).min(dim=2)
            if not inner_product:
                lowest = lowest.mul_(2).add_(some.square().sum(2)).clamp_(min=0)
        distances[:, block] = lowest
    return Nearest(numbers, distances)


def blocks(count: int, width: int, device: torch.device) -> Iterator[slice]:
    """Slices of so many rows, such that as many scores of that width are held at a time as the device likes."""
    step = max(BLOCK_BYTES.get(device.type, OTHER_BLOCK_BYTES) // (4 * width), 1)
    return (slice(start, start + step) for start in range(0, count, step))


def _with_norms(centroids: Tensor) -> Tensor:
    """Rows whose product with (x, |x|²/2, 1) is half the squared distance between centroid and x."""
    norms = centroids.square().sum(2, keepdim=True) / 2
    return torch.cat([-centroids, torch.ones_like(norms), norms], 2)


def _packed_minimum(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers and squared distances of the nearest centroids, all in one vectorised minimum.

    torch looks for the place of a minimum three times more slowly than for the minimum.  So the place is written into
    the last bits of each distance, read as an integer, whose order is that of the numbers from 0 on.  What is lost,
    one part in 2^15, lies between centroids that are equally near.
    """
    norms = points.square().sum(2, keepdim=True) / 2
    augmented = torch.cat([points, norms, torch.ones_like(norms)], 2)
    halves = torch.bmm(augmented, rows.transpose(1, 2)).clamp_(min=0)  # (groups, block, clusters)
    mask = (1 << (rows.shape[1] - 1).bit_length()) - 1
    places = torch.arange(rows.shape[1], dtype=torch.int32, device=points.device)
    lowest = halves.view(torch.int32).bitwise_and_(~mask).bitwise_or_(places).amin(2)
    return lowest.bitwise_and(mask), lowest.bitwise_and(~mask).view(torch.float32) * 2

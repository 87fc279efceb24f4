from __future__ import annotations

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.quantize.kmeans import kmeans
from knn_seq.quantize.nearest import blocks, nearest_centroids


class ProductQuantizer:
    """Vectors as one small number for each of their subspaces: that of the nearest centroid there.

    Args:
        centroids: (subspaces, clusters, dimension of a subspace), float32.
    """

    def __init__(self, centroids: Tensor) -> None:
        self.centroids = centroids

    @classmethod
    def train(
        cls,
        points: Tensor,
        subspaces: int,
        bits: int = 8,
        iterations: int = 25,
        seed: int = 0,
        start: ProductQuantizer | None = None,
    ) -> ProductQuantizer:
        """Learn 2^bits centroids for each subspace.

        Args:
            points: (n, dimension), on any device; the number of subspaces divides the dimension.
            subspaces: How many.
            bits: Of a code, at most 8.
            iterations: Of k-means.
            seed: Of k-means.
            start: Continue from its centroids.
        """
        if points.shape[1] % subspaces:
            raise InvalidSetting(f"{subspaces} subspaces do not divide the dimension {points.shape[1]}.")
        begin = None if start is None else start.centroids
        return cls(kmeans(_split(points, subspaces), 1 << bits, iterations, seed, start=begin))

    @property
    def subspaces(self) -> int:
        """How many there are."""
        return self.centroids.shape[0]

    @property
    def dimension(self) -> int:
        """Of the vectors."""
        return self.centroids.shape[0] * self.centroids.shape[2]

    def encode(self, points: Tensor) -> Tensor:
        """The codes, (n, subspaces) uint8, of points, (n, dimension)."""
        return nearest_centroids(_split(points, self.subspaces), self.centroids).centroids.T.to(torch.uint8)

    def decode(self, codes: Tensor) -> Tensor:
        """The vectors, (n, dimension), that codes, (n, subspaces), stand for."""
        vectors = self.centroids.new_empty(len(codes), self.dimension)
        columns = torch.arange(self.subspaces, device=codes.device)
        for block in blocks(len(codes), self.dimension, codes.device):
            vectors[block] = self.centroids[columns, codes[block].long()].flatten(1)
        return vectors


def _split(points: Tensor, subspaces: int) -> Tensor:
    """(subspaces, n, dimension of a subspace), each subspace's rows together."""
    return points.view(len(points), subspaces, -1).transpose(0, 1).contiguous()

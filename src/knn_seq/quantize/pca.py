from __future__ import annotations

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.quantize.nearest import blocks


class PCA:
    """The directions in which vectors vary most, the most first.

    Args:
        mean: (dimension,).
        directions: (dimension, dimension), a direction a row, orthonormal.
        variances: (dimension,), along them.
    """

    def __init__(self, mean: Tensor, directions: Tensor, variances: Tensor) -> None:
        self.mean, self.directions, self.variances = mean, directions, variances

    @classmethod
    def train(cls, points: Tensor) -> PCA:
        """Learn from points, (n, dimension), on any device."""
        if len(points) < 2:
            raise InvalidSetting(f"PCA needs at least 2 vectors, and there are {len(points)}.")
        # Sums in double precision, of blocks: a matrix of all points in that precision may not fit.
        wide = torch.float32 if points.device.type == "mps" else torch.float64
        mean = points.mean(0, dtype=wide)
        covariance = torch.zeros(points.shape[1], points.shape[1], dtype=wide, device=points.device)
        for block in blocks(len(points), points.shape[1], points.device):
            centred = points[block].to(wide) - mean
            covariance.addmm_(centred.T, centred)
        variances, directions = torch.linalg.eigh(covariance / (len(points) - 1))
        return cls(mean.float(), directions.T.flip(0).float(), variances.flip(0).clamp(min=0).float())

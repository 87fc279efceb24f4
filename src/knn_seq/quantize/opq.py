from __future__ import annotations

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.quantize.pca import PCA
from knn_seq.quantize.product import ProductQuantizer

ROUNDS = 8


class OPQ:
    """A rotation after which product quantization loses less.

    Args:
        rotation: (transformed dimension, dimension), orthonormal rows; a vector x becomes rotation @ x.
        quantizer: The codebooks that were learned along with it.
    """

    def __init__(self, rotation: Tensor, quantizer: ProductQuantizer) -> None:
        self.rotation, self.quantizer = rotation, quantizer

    @classmethod
    def train(
        cls,
        points: Tensor,
        subspaces: int,
        dimension: int | None = None,
        bits: int = 8,
        rounds: int = ROUNDS,
        seed: int = 0,
    ) -> OPQ:
        """Learn rotation and codebooks in turns, each the best for the other.

        Args:
            points: (n, dimension), on any device.
            subspaces: Of the product quantizer.
            dimension: Of the rotated vectors; None: that of the points.
            bits: Of a code.
            rounds: How often rotation and codebooks take turns.
            seed: Of k-means.
        """
        dimension = dimension or points.shape[1]
        if dimension % subspaces or dimension > points.shape[1]:
            raise InvalidSetting(
                f"OPQ into {subspaces} subspaces needs a transformed dimension that they divide, up to "
                f"{points.shape[1]}, not {dimension}."
            )
        rotation = _balanced(PCA.train(points), subspaces, dimension)
        quantizer: ProductQuantizer | None = None
        for _ in range(rounds):
            rotated = points @ rotation.T
            quantizer = ProductQuantizer.train(rotated, subspaces, bits, 4, seed, start=quantizer)
            decoded = quantizer.decode(quantizer.encode(rotated))
            # The rotation that brings the points nearest to what their codes stand for: orthogonal Procrustes.
            left, _, right = torch.linalg.svd(decoded.T @ points, full_matrices=False)
            rotation = left @ right
        return cls(rotation, ProductQuantizer.train(points @ rotation.T, subspaces, bits, seed=seed, start=quantizer))


def _balanced(pca: PCA, subspaces: int, dimension: int) -> Tensor:
    """Principal directions dealt out so that the product of variances is about the same in every subspace."""
    logs = pca.variances[:dimension].clamp(min=1e-12).log().tolist()
    dealt: list[list[int]] = [[] for _ in range(subspaces)]
    sums = [0.0] * subspaces
    for direction, log in enumerate(logs):
        free = [s for s in range(subspaces) if len(dealt[s]) < dimension // subspaces]
        fewest = min(free, key=lambda s: sums[s])
        dealt[fewest].append(direction)
        sums[fewest] += log - logs[-1]  # as if the smallest variance were 1, so that each one adds
    return pca.directions[[direction for subspace in dealt for direction in subspace]]

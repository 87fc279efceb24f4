from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import DamagedFile
from knn_seq.storage.atomic import partial_of, publish
from knn_seq.storage.flat import FlatWriter, create_flat, open_flat

CHUNK = 1 << 16  # rows


class Whitening:
    """Transforms sentence vectors to mean 0 and equal variance in all directions.

    States of a network vary much in a few directions, whatever the sentence says; those must not decide alone.

    Args:
        mean: Of the vectors, (dimension,).
        matrix: (dimension, dimension); a vector x becomes (x − mean) @ matrix, of length one.
    """

    def __init__(self, mean: Tensor, matrix: Tensor) -> None:
        self.mean, self.matrix = mean, matrix

    @classmethod
    def fit(cls, vectors: NDArray[Any]) -> Whitening:
        """Learn from vectors, (n, dimension), which may be a memory map larger than memory."""
        count, dimension = vectors.shape
        total, products = torch.zeros(dimension).double(), torch.zeros(dimension, dimension).double()
        for start in range(0, count, CHUNK):
            rows = torch.from_numpy(vectors[start : start + CHUNK].astype(np.float64))
            total += rows.sum(dim=0)
            products += rows.T @ rows
        mean = total / count
        variances, directions = torch.linalg.eigh(products / count - mean.outer(mean))
        # Few vectors say little of the directions in which they hardly vary: those must not be blown up.
        variances = variances.clamp(min=0) + max(float(variances.mean()), 1e-12) * dimension / count
        return cls(mean.float(), (directions / variances.sqrt()).float())

    @classmethod
    def none(cls, dimension: int) -> Whitening:
        """One that leaves vectors of length one as they are."""
        return cls(torch.zeros(dimension), torch.eye(dimension))

    def apply(self, vectors: Tensor) -> Tensor:
        """The whitened vectors, of length one, where these are."""
        mean, matrix = self.mean.to(vectors.device), self.matrix.to(vectors.device)
        return torch.nn.functional.normalize((vectors.float() - mean) @ matrix, dim=1)

    def save(self, path: Path) -> None:
        """Write it."""
        arrays = {"mean": self.mean.numpy()[None], "matrix": self.matrix.numpy()}
        create_flat(partial_of(path), {name: (array.shape, array.dtype) for name, array in arrays.items()})
        with FlatWriter(partial_of(path)) as writer:
            for name, array in arrays.items():
                writer.write(name, 0, array)
        publish(partial_of(path), path)

    @classmethod
    def load(cls, path: Path) -> Whitening:
        """Read what `save` wrote."""
        arrays = open_flat(path)
        if set(arrays) != {"mean", "matrix"}:
            raise DamagedFile(f"{path} is damaged: prepare the datastore for subset search again.")
        return cls(torch.from_numpy(arrays["mean"][0].copy()), torch.from_numpy(arrays["matrix"].copy()))

"""What an index finds."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

Vectors = Tensor | NDArray[Any]
"""Vectors as rows, (n, dimension): a tensor on any device or an array, of any floating type."""


class SearchResult(NamedTuple):
    """The nearest entries, a row a query, nearest first; missing ones have id -1 and distance infinity."""

    distances: Tensor  # (queries, k) float32; smaller is nearer, whatever the metric
    ids: Tensor  # (queries, k) int64


def merge_results(first: SearchResult, second: SearchResult, k: int) -> SearchResult:
    """The k nearest of both, of equally near ones those with the lower ids."""
    ids, order = torch.cat([first.ids, second.ids], dim=1).sort(dim=1)
    distances = torch.cat([first.distances, second.distances], dim=1).gather(1, order)
    distances, order = distances.sort(dim=1, stable=True)
    return SearchResult(distances[:, :k], ids.gather(1, order)[:, :k])

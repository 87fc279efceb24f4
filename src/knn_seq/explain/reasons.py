"""What a combiner's λ depends on, as a person would say it: how near neighbours are, and how much they agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from knn_seq.combine import Combination, Combiner
from knn_seq.combine.trained import TrainedCombiner
from knn_seq.decoding import KnnDecoder
from knn_seq.decoding.stored_settings import median_distance
from knn_seq.index import Neighbours
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder


class UsualDistance(NamedTuple):
    """What distances are measured by."""

    scale: float
    offset: float = 0.0

    @classmethod
    def known(cls, decoder: KnnDecoder, settings: SearchSettings) -> UsualDistance | None:
        """That of a trained combiner, or else the one that was measured in the build; None: nothing is known."""
        combiner: Combiner = decoder.combiner(settings)
        if isinstance(combiner, TrainedCombiner):
            return cls(combiner.shape.scale, combiner.shape.offset)
        if not isinstance(decoder.store, DatastoreFolder):
            return None
        median = median_distance(decoder.store, settings)
        # Inner products, which are negative distances, have no usual one without an offset.
        index = decoder.store.manifest.indexes.get(settings.index or decoder.store.manifest.default_index or "")
        return None if median is None or (index is not None and index.metric == "ip") else cls(median)


class Reasons(NamedTuple):
    """Of one token; None without neighbours."""

    nearest_distance: float | None
    relative_distance: float | None
    agreement: float | None


def reasons(neighbours: Neighbours, combination: Combination, usual: UsualDistance | None) -> Iterator[Reasons]:
    """Those of each row.

    Args:
        neighbours: What was found, (rows, k).
        combination: What the combiner made of it.
        usual: What distances are measured by.
    """
    nearest, shares = neighbours.distances[:, 0], agreement(neighbours, combination.probabilities)
    columns = (neighbours.empty.tolist(), nearest.tolist(), shares.tolist())
    for empty, distance, share in zip(*columns, strict=True):
        relative = None if usual is None else (distance - usual.offset) / usual.scale
        yield Reasons(None, None, None) if empty else Reasons(distance, relative, share)


def agreement(neighbours: Neighbours, probabilities: Tensor) -> Tensor:
    """The share of each row's neighbours whose value is the most probable one of p_kNN, (rows,).

    Args:
        neighbours: What was found, (rows, k).
        probabilities: The part of p_kNN that each gives to its value, (rows, k).
    """
    rows, k = neighbours.values.shape
    found = neighbours.found
    # A number for each value of each row; missing neighbours have one of their own.
    values = torch.where(found, neighbours.values, -1) + 1
    numbered = values + torch.arange(rows, device=values.device).unsqueeze(1) * (int(values.max()) + 1 if rows else 1)
    numbers: Tensor = numbered.flatten().unique(return_inverse=True)[1]  # type: ignore[no-untyped-call]
    mass = probabilities.new_zeros(rows * k).index_add(0, numbers, probabilities.masked_fill(~found, 0.0).flatten())
    numbers = numbers.view(rows, k)
    best = mass[numbers].masked_fill(~found, -1.0).argmax(dim=1, keepdim=True)
    agreeing = (numbers == numbers.gather(1, best)) & found
    return agreeing.sum(dim=1) / found.sum(dim=1).clamp(min=1)

"""What a retriever finds and a combiner uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.runtime.first_places import first_places


@dataclass(frozen=True)
class Neighbours:
    """The nearest entries of some queries, a row a query, nearest first.

    A row with fewer than k neighbours is filled up with id -1, distance infinity and value 0, of probability 0.
    """

    distances: Tensor  # (rows, k) float32
    values: Tensor  # (rows, k) int64: target tokens
    ids: Tensor  # (rows, k) int64: entries of the datastore
    complete: bool = False  # every place is known to hold a real neighbour; False: it has to be looked at
    counts: Tensor | None = None  # (rows, k) int64: entries that each stands for, 1 in empty places; None: 1 everywhere

    @property
    def found(self) -> Tensor:
        """Which places hold a real neighbour, (rows, k) bool."""
        return self.ids >= 0

    @cached_property
    def empty(self) -> Tensor:
        """The rows for which nothing was found, (rows,) bool."""
        return self.ids[:, 0] < 0

    @cached_property
    def first_places(self) -> Tensor:
        """For each neighbour the place of the first with its value in the row, (rows, k)."""
        return first_places(self.values)

    def rows(self, index: Tensor | slice) -> Neighbours:
        """The neighbours of other rows: row i of the result is row index[i] of this."""
        counts = None if self.counts is None else self.counts[index]
        return Neighbours(self.distances[index], self.values[index], self.ids[index], self.complete, counts)

    def nearest(self, k: int) -> Neighbours:
        """The first k of each row."""
        counts = None if self.counts is None else self.counts[:, :k]
        return Neighbours(self.distances[:, :k], self.values[:, :k], self.ids[:, :k], self.complete, counts)

    def with_counts(self, counts: NDArray[Any] | None) -> Neighbours:
        """The same, with how many entries each stands for.

        Args:
            counts: Of all entries of the datastore, (entries,); None: nothing changes.
        """
        if counts is None:
            return self
        ids = self.ids.cpu().numpy()
        of_each = np.where(ids >= 0, np.take(counts, ids, mode="clip"), 1) if len(counts) else np.ones_like(ids)
        return replace(self, counts=torch.from_numpy(of_each.astype(np.int64)).to(self.ids.device))

    def scatter(self, rows: Tensor) -> Neighbours:
        """The neighbours of more rows, of which nothing was found for the others.

        Args:
            rows: The rows that these are the neighbours of, (all rows,) bool.
        """
        every = Neighbours.none(len(rows), self.ids.shape[1], self.ids.device)
        every.distances[rows], every.values[rows], every.ids[rows] = self.distances, self.values, self.ids
        if self.counts is None:
            return every
        counts = torch.ones_like(every.ids)
        counts[rows] = self.counts
        return replace(every, counts=counts)

    def replaced(self, rows: Tensor, by: Neighbours) -> Neighbours:
        """The same, with others in some rows.

        Args:
            rows: Which, (rows,) bool.
            by: Their neighbours, of the same k.
        """
        if not len(by.ids):
            return self
        distances, values, ids = self.distances.clone(), self.values.clone(), self.ids.clone()
        distances[rows], values[rows], ids[rows] = by.distances, by.values, by.ids
        counts = None
        if self.counts is not None or by.counts is not None:
            counts = torch.ones_like(self.ids) if self.counts is None else self.counts.clone()
            counts[rows] = 1 if by.counts is None else by.counts
        return Neighbours(distances, values, ids, counts=counts)

    def without(self, dropped: Tensor) -> Neighbours:
        """The neighbours that are not dropped, (rows, k) bool, still nearest first; places at the end become empty."""
        order = dropped.to(torch.int8).argsort(dim=1, stable=True)
        gone = dropped.gather(1, order)
        return Neighbours(
            self.distances.gather(1, order).masked_fill(gone, torch.inf),
            self.values.gather(1, order).masked_fill(gone, 0),
            self.ids.gather(1, order).masked_fill(gone, -1),
            counts=None if self.counts is None else self.counts.gather(1, order).masked_fill(gone, 1),
        )

    def merged(self, other: Neighbours) -> Neighbours:
        """The k nearest of these and of others, which have none in common; of equally near ones the lower ids."""
        k = self.ids.shape[1]
        ids, order = torch.cat([self.ids, other.ids], dim=1).sort(dim=1)
        distances, by_distance = (
            torch.cat([self.distances, other.distances], dim=1).gather(1, order).sort(dim=1, stable=True)
        )
        order = order.gather(1, by_distance)[:, :k]
        values = torch.cat([self.values, other.values], dim=1).gather(1, order)
        return Neighbours(distances[:, :k], values, ids.gather(1, by_distance)[:, :k])

    def to(self, device: torch.device | str) -> Neighbours:
        """The same on another device."""
        counts = None if self.counts is None else self.counts.to(device)
        return Neighbours(self.distances.to(device), self.values.to(device), self.ids.to(device), self.complete, counts)

    @classmethod
    def none(cls, rows: int, k: int, device: torch.device | str = "cpu") -> Neighbours:
        """Rows for which nothing was found."""
        missing = torch.full((rows, k), -1, device=device)
        return cls(torch.full((rows, k), torch.inf, device=device), torch.zeros_like(missing), missing)

    @classmethod
    def join(cls, parts: Sequence[Neighbours]) -> Neighbours:
        """The rows of all parts, which have the same k."""
        return cls(
            torch.cat([part.distances for part in parts]),
            torch.cat([part.values for part in parts]),
            torch.cat([part.ids for part in parts]),
            all(part.complete for part in parts),
            torch.cat([torch.ones_like(part.ids) if part.counts is None else part.counts for part in parts])
            if any(part.counts is not None for part in parts)
            else None,
        )

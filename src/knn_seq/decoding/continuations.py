from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knn_seq.index import Neighbours
from knn_seq.storage import DatastoreFolder

FOLLOWED = 8  # of the nearest neighbours of a row
FARTHEST = 8.0  # times the usual distance: what is farther, and what is missing, is equally far
NEAREST = 0.01  # of the usual distance: the logarithm tells nothing nearer apart
TEMPERATURE = 0.3  # of the usual distance
OLDEST = 8  # steps: what was found earlier is equally old
FEATURES = 7


@dataclass(frozen=True)
class Continuations:
    """What the neighbours of an earlier step propose now, a row a prefix.

    A neighbour is a place in a stored sentence.  As long as the tokens are written that stand there, the next one is
    likely to be found again if it is searched for: so what a search would find is known a little before it.
    """

    places: NDArray[np.int64]  # (rows, n): where in the datastore's targets the token stands that each proposes
    tokens: NDArray[np.int64]  # (rows, n): that token
    shares: NDArray[np.float32]  # (rows, n): how much each counts, 0 once something else was written than it proposed
    distances: NDArray[np.float32]  # (rows, n): at which it was found, in units of a usual one
    age: NDArray[np.int64]  # (rows,): how many steps ago the row was searched

    @classmethod
    def none(cls, rows: int) -> Continuations:
        """Those of rows for which nothing was ever found."""
        whole, real = np.zeros((rows, FOLLOWED), np.int64), np.zeros((rows, FOLLOWED), np.float32)
        return cls(whole, whole.copy(), real, real + FARTHEST, np.full(rows, OLDEST))

    @classmethod
    def of(cls, neighbours: Neighbours, store: DatastoreFolder, offset: float, scale: float) -> Continuations:
        """Those of rows that were just searched.

        Args:
            neighbours: What was found.
            store: Where.
            offset: From which distances are measured.
            scale: A usual distance.
        """
        near = neighbours.nearest(FOLLOWED).to("cpu")
        n = near.ids.shape[1]
        every = cls.none(len(near.ids))
        relative = np.clip((near.distances.numpy() - offset) / scale, 0.0, FARTHEST)
        shares = np.exp((relative[:, :1] - relative) / TEMPERATURE) * near.found.numpy()
        if near.counts is not None:
            shares = shares * near.counts.numpy()
        every.places[:, :n] = store.places(near.ids.numpy())
        every.tokens[:, :n], every.distances[:, :n] = near.values.numpy(), relative
        every.shares[:, :n] = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-9)
        every.age[:] = 0
        return every

    def rows(self, rows: Sequence[int] | NDArray[np.int64]) -> Continuations:
        """Those of other rows: row i of the result is row rows[i] of this."""
        return Continuations(
            self.places[rows], self.tokens[rows], self.shares[rows], self.distances[rows], self.age[rows]
        )

    def after(self, written: ArrayLike, store: DatastoreFolder) -> Continuations:
        """What is proposed next.

        Args:
            written: The token that was written in each row, (rows,).
            store: Where neighbours were found.
        """
        right, items = self.tokens == np.asarray(written)[:, None], store.targets.items
        places = np.minimum(self.places + 1, len(items) - 1)
        age = np.minimum(self.age + 1, OLDEST)
        return replace(self, places=places, tokens=items[places].astype(np.int64), shares=self.shares * right, age=age)

    def renewed(self, rows: NDArray[np.bool_], others: Continuations) -> Continuations:
        """With those of others, row for row, where `rows` is true."""
        column = rows[:, None]
        return Continuations(
            np.where(column, others.places, self.places),
            np.where(column, others.tokens, self.tokens),
            np.where(column, others.shares, self.shares),
            np.where(column, others.distances, self.distances),
            np.where(rows, others.age, self.age),
        )

    def features(self, choices: NDArray[np.bool_]) -> NDArray[np.float32]:
        """What a network may know of each row, (rows, features): how much is proposed, how near it was, how old it is.

        Args:
            choices: Which proposed tokens are the model's choice, (rows, n).
        """
        proposing = self.shares > 0
        total, agreeing = self.shares.sum(axis=1), (self.shares * choices).sum(axis=1)
        nearest = np.where(proposing, self.distances, FARTHEST).min(axis=1)
        columns = (
            proposing.any(axis=1),
            total,
            agreeing,
            total - agreeing,
            agreeing / np.maximum(total, 1e-9),
            np.log(nearest + NEAREST) / 2,
            self.age / 4,
        )
        return np.stack(columns, axis=1).astype(np.float32)

"""Entries with similar keys: states of an automaton, whose members share their pointers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import KnnSeqError, NotFound
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.flat import open_flat

CLUSTERS_NAME = "clusters.h5"
ASSIGNED = "clusters"  # (entries,) int32: the cluster of each entry


class Clusters:
    """The cluster of each entry, and the entries of each cluster.

    Args:
        assigned: The cluster of each entry, (entries,).  Entries beyond are each a cluster of their own.
    """

    def __init__(self, assigned: NDArray[np.int32]) -> None:
        self.assigned = assigned
        self._members = np.argsort(assigned, kind="stable")  # entry by entry, cluster after cluster
        self._offsets = np.concatenate([[0], np.cumsum(np.bincount(assigned, minlength=1))])

    def members(self, cluster: int) -> NDArray[np.int64]:
        """The entries of a cluster, ascending."""
        return self._members[self._offsets[cluster] : self._offsets[cluster + 1]]

    def join(self, pointers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
        """Pointers, and the members of their clusters behind them, those that hold most of the pointers first.

        Args:
            pointers: (rows, any number), -1 last.
            most: What a row may have in the end.
        """
        rows = [self._joined(row[row >= 0], most) for row in pointers]
        joined = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int64)
        for place, row in zip(joined, rows, strict=True):
            place[: len(row)] = row
        return joined

    def _joined(self, own: NDArray[np.int64], most: int) -> NDArray[np.int64]:
        known = own[own < len(self.assigned)]
        clusters, counts = np.unique(self.assigned[known], return_counts=True)
        parts, size = [own], len(own)
        for cluster in clusters[np.argsort(-counts, kind="stable")]:
            if size >= most:
                break
            members = self.members(int(cluster))
            parts.append(members[~np.isin(members, own)])
            size += len(parts[-1])
        return np.concatenate(parts)[:most]


def clusters_path(store: DatastoreFolder) -> Path:
    """Where a datastore keeps them."""
    return store.path / CLUSTERS_NAME


def open_clusters(store: DatastoreFolder) -> Clusters:
    """Those of a datastore; a `KnnSeqError` if none were made."""
    try:
        assigned = open_flat(clusters_path(store)).get(ASSIGNED)
    except NotFound:
        assigned = None
    if assigned is None:
        raise KnnSeqError(f"{store.path} has no clusters: run `knn-seq index {store.path} --clusters`.")
    return Clusters(np.asarray(assigned))

"""Clusters of a datastore's keys, for pointers."""

from __future__ import annotations

import numpy as np
import torch

from knn_seq.decoding.clusters import ASSIGNED, clusters_path
from knn_seq.errors import InvalidSetting
from knn_seq.quantize import kmeans
from knn_seq.quantize.nearest import nearest_centroids
from knn_seq.runtime.progress import Progress
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.atomic import disk_errors, partial_of, publish
from knn_seq.storage.flat import FlatWriter, create_flat

SIZE = 64  # entries of a cluster, on average
SAMPLED = 1 << 18  # keys that the centroids are learned from, at most
BLOCK = 1 << 16  # keys that are assigned at a time


def store_clusters(store: DatastoreFolder, size: int = SIZE, seed: int = 0) -> None:
    """Divide the keys into clusters by k-means and store which entry belongs to which.

    Args:
        store: The datastore, whose clusters are replaced if it has any.
        size: How many entries a cluster has on average.
        seed: Of the sample and the first centroids.
    """
    if size < 1:
        raise InvalidSetting(f"The size of clusters must be at least 1, not {size}.")
    path, entries = clusters_path(store), len(store)
    chosen = np.sort(np.random.default_rng(seed).permutation(entries)[:SAMPLED])
    count = max(min(entries // size, len(chosen)), 1)
    with disk_errors(store.path), store.lock():
        with Progress("clusters", entries, "key") as progress:
            centroids = kmeans(torch.from_numpy(store.keys[chosen].astype(np.float32)), count, seed=seed)
            create_flat(partial_of(path), {ASSIGNED: ((entries,), np.int32)})
            with FlatWriter(partial_of(path)) as writer:
                for start in range(0, entries, BLOCK):
                    keys = torch.from_numpy(store.keys[start : start + BLOCK].astype(np.float32))
                    writer.write(ASSIGNED, start, nearest_centroids(keys, centroids).centroids.numpy())
                    progress.update(len(keys))
                writer.sync()
        publish(partial_of(path), path)

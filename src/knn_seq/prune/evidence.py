"""What is known of each entry of a datastore: one pass of the model, one of the index, both resumable."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.build.batches import plan_batches
from knn_seq.index import open_index
from knn_seq.likelihood.predictions import SCORE_TOKENS
from knn_seq.models import Model
from knn_seq.prune.base import Evidence, PruningMethod
from knn_seq.prune.columns import Column, ColumnWriter, no_column, open_column
from knn_seq.runtime.progress import Progress
from knn_seq.storage import DatastoreFolder

SEARCHED = 4096  # entries at a time
LEAST_LOG_PROB = -1e4  # log 0 cannot be stored


def gather_evidence(
    store: DatastoreFolder,
    model: Model,
    method: PruningMethod,
    folder: Path,
    identity: Mapping[str, Any],
    checkpoint_seconds: float,
) -> Evidence:
    """What the method wants to know of each entry, or resume gathering it.

    Args:
        store: The datastore.
        model: The one that its keys were made with.
        method: Says what it wants to know.
        folder: Where that is stored meanwhile.
        identity: What it depends on.
        checkpoint_seconds: The most work that a kill may cost.
    """
    entries, k = len(store), min(method.neighbours, len(store) - 1)
    log_probs = no_column(entries, np.float32)
    neighbours, distances = no_column(entries, np.int64), no_column(entries, np.float32)
    if method.reads_model:
        columns = {"log_probs": Column(2, np.float32)}
        with ColumnWriter(folder, columns, entries, identity, checkpoint_seconds) as writer:
            _score(store, model, writer)
        log_probs = open_column(folder, "log_probs")
    if k > 0:
        columns = {"neighbours": Column(k, np.int64), "distances": Column(k, np.float32)}
        with ColumnWriter(
            folder, columns, entries, {**identity, "index": _index_of(store)}, checkpoint_seconds
        ) as writer:
            _search(store, k, writer)
        neighbours, distances = open_column(folder, "neighbours"), open_column(folder, "distances")
    return Evidence(store, log_probs, neighbours, distances)


def _score(store: DatastoreFolder, model: Model, writer: ColumnWriter) -> None:
    """log p_MT of each entry's value and of the model's choice, under teacher forcing; a unit is a batch."""
    if writer.finished:
        return
    offsets, batches = store.values.offsets, list(plan_batches(store.sources, store.targets, SCORE_TOKENS))
    done = sum(int(_lengths(offsets, batch).sum()) for batch in batches[: writer.done])
    with Progress("model", len(store), "token", done) as progress:
        for batch in islice(batches, writer.done, None):
            pairs = store.token_pairs(batch.tolist())
            log_probs = model.score(pairs).log_probs
            targets = torch.tensor([token for pair in pairs for token in pair.target], device=log_probs.device)
            of_targets = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
            rows = torch.stack([of_targets, log_probs.amax(dim=1)], dim=1).clamp(min=LEAST_LOG_PROB).cpu().numpy()
            first = 0
            for number, pair in zip(batch.tolist(), pairs, strict=True):
                entries = np.arange(offsets[number], offsets[number + 1])
                writer.write(offsets[number], log_probs=rows[first + store.locate(entries)[1]])
                first += len(pair.target)
            writer.advance()
            progress.update(int(_lengths(offsets, batch).sum()))
    writer.finish()


def _search(store: DatastoreFolder, k: int, writer: ColumnWriter) -> None:
    """The neighbours of each entry but for itself; a unit is an entry."""
    if writer.finished:
        return
    index = open_index(store)
    with Progress("neighbours", len(store), "key", writer.done) as progress:
        for start in range(writer.done, len(store), SEARCHED):
            keys = store.keys[start : start + SEARCHED].astype(np.float32)
            found = index.search(keys, k + 1)
            ids, distances = found.ids.cpu().numpy(), found.distances.cpu().numpy()
            others = _others(ids, np.arange(start, start + len(ids)))
            ids, distances = ids[others].reshape(-1, k), distances[others].reshape(-1, k)
            writer.write(start, neighbours=ids, distances=np.where(ids < 0, np.finfo(np.float32).max, distances))
            writer.advance(len(ids))
            progress.update(len(ids))
    writer.finish()


def _others(ids: NDArray[np.int64], itself: NDArray[np.int64]) -> NDArray[np.bool_]:
    """All places but that of the entry itself, or the last one if it was not found; (n, k + 1) bool."""
    own = ids == itself[:, None]
    own[~own.any(axis=1), -1] = True
    return np.asarray(~own)


def _lengths(offsets: NDArray[np.int64], batch: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(offsets[batch + 1] - offsets[batch])


def _index_of(store: DatastoreFolder) -> dict[str, Any]:
    return store.manifest.indexes[str(store.manifest.default_index)].to_dict()

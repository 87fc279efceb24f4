"""Fewer searches: what was found for a token points to what may come next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.decoding.clusters import Clusters
from knn_seq.index import Neighbours
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.continuation import next_entries, present

AGREEMENT = 0.7  # the least share of pointers that must have the same token, where nobody says otherwise
MOST_POINTERS = 1024  # of a row: those beyond bring nothing, and take time

Ids = NDArray[np.int64]


class Followed(NamedTuple):
    """Rows that need no search."""

    rows: Tensor  # (rows of the step,) bool
    neighbours: Neighbours  # of these rows
    ids: Ids  # (these rows, any number): all that they may continue with; -1: nothing


class Pointers:
    """Follows the neighbours of each row of a batch from step to step, as the automaton of RetoMaton does.

    A neighbour whose token was chosen points to the entry behind it.  Where enough pointers are left, and agree, the
    nearest of them are a row's neighbours and nothing is searched.  Rows are known by their prefixes, so beams may be
    cut, copied and reordered.

    Args:
        store: Whose entries are followed.
        settings: How many pointers are enough, and how much they have to agree.
        clusters: Entries with similar keys, which join the pointers; None: none do.
    """

    def __init__(self, store: DatastoreFolder, settings: SearchSettings, clusters: Clusters | None = None) -> None:
        assert settings.pointers is not None
        self.store, self.clusters = store, clusters
        self.minimum, self.k = settings.pointers, settings.k
        self.agreement = AGREEMENT if settings.pointer_agreement is None else settings.pointer_agreement
        self.metric = store.manifest.searched_metric(settings.retriever, settings.index)
        self._rows: dict[tuple[int, bytes], int] = {}  # the row of each sentence and prefix at the last step
        self._ids: Ids = np.empty((0, 0), np.int64)  # (rows, pointers): what these rows may continue with; -1: nothing

    def follow(self, queries: Tensor, sentences: Tensor, prefixes: Tensor) -> Followed:
        """The rows that need no search, with what they have instead.

        Args:
            queries: (rows, dimension)
            sentences: For each row its sentence in the batch, (rows,).
            prefixes: The tokens before each row, (rows, t); -1 behind them in rows that have fewer than others.
        """
        candidates = self._continuing(sentences, prefixes)
        enough = self._enough(candidates)
        rows, some = torch.from_numpy(enough).to(queries.device), candidates[enough]
        if not enough.any():
            return Followed(rows, Neighbours.none(0, self.k, queries.device), some)
        if self.clusters is not None:
            some = self.clusters.join(some, MOST_POINTERS)
            some = np.where((some >= 0) & present(self.store, np.maximum(some, 0)), some, -1)
        return Followed(rows, self._ranked(queries[rows], some), some)

    def remember(self, sentences: Tensor, prefixes: Tensor, found: Neighbours, followed: Followed) -> None:
        """What each row has found in the end, for the next step.

        Args:
            sentences: (rows,)
            prefixes: (rows, t)
            found: The neighbours of all rows.
            followed: What `follow` gave for this step.
        """
        written, lengths = _written(prefixes)
        history = zip(sentences.tolist(), written, lengths.tolist(), strict=True)
        self._rows = {
            (sentence, prefix[:length].tobytes()): number for number, (sentence, prefix, length) in enumerate(history)
        }
        # Clusters may bring more than k: all of them can be continued.
        self._ids = np.full((len(found.ids), max(found.ids.shape[1], followed.ids.shape[1])), -1, np.int64)
        self._ids[:, : found.ids.shape[1]] = found.ids.cpu().numpy()
        rows = followed.rows.cpu().numpy()
        self._ids[rows] = -1
        self._ids[rows, : followed.ids.shape[1]] = followed.ids

    def _continuing(self, sentences: Tensor, prefixes: Tensor) -> Ids:
        """The entries behind those of each row's last step that have the chosen token, (rows, pointers), -1 last."""
        written, lengths = _written(prefixes)
        if not self._rows or not written.shape[1]:
            return np.full((len(written), 0), -1, np.int64)
        history = zip(sentences.tolist(), written, lengths.tolist(), strict=True)
        parents = np.array(
            [
                self._rows.get((sentence, prefix[: length - 1].tobytes()), -1) if length else -1
                for sentence, prefix, length in history
            ],
            np.int64,
        )
        last = np.take_along_axis(written, np.maximum(lengths - 1, 0)[:, None], axis=1)
        ids = np.where((parents >= 0)[:, None], self._ids[parents], -1)
        ids[self.store.values.items[np.maximum(ids, 0)] != last] = -1
        there = ids >= 0
        ids[there] = next_entries(self.store, ids[there])
        ids = np.take_along_axis(ids, np.argsort(ids < 0, axis=1, kind="stable"), axis=1)
        return ids[:, : max(int((ids >= 0).sum(axis=1).max(initial=0)), 1)]

    def _enough(self, candidates: Ids) -> NDArray[np.bool_]:
        """The rows with enough pointers that agree enough, (rows,) bool."""
        found = candidates >= 0
        counts = found.sum(axis=1)
        enough: NDArray[np.bool_] = counts >= self.minimum
        if self.agreement > 0 and enough.any():
            values = self.store.values.items[np.maximum(candidates, 0)]
            enough &= _most_of_one_value(np.where(found, values, -1)) >= self.agreement * counts
        return enough

    def _ranked(self, queries: Tensor, candidates: Ids) -> Neighbours:
        """The k nearest of each row's candidates, (rows, any number), by the distances of their keys."""
        missing = torch.from_numpy(candidates < 0)
        keys = torch.from_numpy(self.store.keys[np.maximum(candidates, 0)]).to(queries.device).float()
        distances = distances_to(queries.float(), keys, self.metric).masked_fill_(missing.to(queries.device), torch.inf)
        distances, order = distances.sort(dim=1, stable=True)
        ids = torch.from_numpy(candidates).to(queries.device).gather(1, order)[:, : self.k]
        nothing = Neighbours.none(len(ids), self.k, queries.device)
        nothing.distances[:, : ids.shape[1]], nothing.ids[:, : ids.shape[1]] = distances[:, : self.k], ids
        values = self.store.values.items[np.maximum(nothing.ids.cpu().numpy(), 0)].astype(np.int64)
        values = torch.from_numpy(values).to(queries.device).masked_fill_(nothing.ids < 0, 0)
        return Neighbours(nothing.distances, values, nothing.ids).with_counts(self.store.counts)


def _written(prefixes: Tensor) -> tuple[Ids, Ids]:
    """The tokens of each row, (rows, t), and how many they are, (rows,)."""
    written: Ids = prefixes.cpu().numpy()
    return written, (written >= 0).sum(axis=1)


def _most_of_one_value(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often the most frequent value of each row, (rows, n), is there, (rows,); -1 is none."""
    ordered, places = np.sort(values, axis=1), np.arange(values.shape[1])
    begins = np.ones(ordered.shape, bool)  # a run of equal values
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    runs: NDArray[np.int64] = np.where(ordered >= 0, places - starts + 1, 0).max(axis=1, initial=0)
    return runs


def distances_to(queries: Tensor, keys: Tensor, metric: str) -> Tensor:
    """The distance of each query to its own keys, (rows, candidates), as a `SearchIndex` of that metric has it.

    Args:
        queries: (rows, dimension) float32
        keys: (rows, candidates, dimension) float32
        metric: "l2", "ip" or "cosine".
    """
    if metric == "ip":
        return -(keys @ queries.unsqueeze(2)).squeeze(2)
    if metric == "cosine":
        queries, keys = (torch.nn.functional.normalize(part, dim=-1) for part in (queries, keys))
        return (keys - queries.unsqueeze(1)).square().sum(dim=2) / 2
    return (keys - queries.unsqueeze(1)).square().sum(dim=2)

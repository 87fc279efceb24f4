"""One search of all segments of a datastore: large ones by an index, small ones exactly, deleted entries never."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.index.base import INDEXES, SearchIndex, SearchResult, Vectors
from knn_seq.index.exact_rows import ExactRows
from knn_seq.index.result import merge_results
from knn_seq.index.stored import load_index
from knn_seq.storage import DatastoreFolder

_NO_IDS = np.empty(0, np.int64)
WIDENING = 4  # times as many neighbours where too many of those that were found are deleted
FEW = 8  # neighbours that a small part is asked for first: it has few of the nearest, unless all are among them


@dataclass(frozen=True)
class Part:
    """Some consecutive rows that are searched by an index of their own."""

    index: SearchIndex
    start: int  # what is added to its ids


@dataclass(frozen=True)
class Tail:
    """Small segments, searched exactly; ids are those of the datastore."""

    rows: ExactRows
    segments: tuple[tuple[Path, int], ...]  # their folders, and where each of them begins


class SegmentedIndex:
    """Several indexes of parts of the same rows, searched as one, without the rows that are deleted.

    Args:
        first: The index of the first rows.
        others: Those of later ones.
        tail: Of the last ones.
        deleted: Whether each row is deleted, (rows,); None: none is.
    """

    def __init__(
        self,
        first: SearchIndex,
        others: Sequence[Part] = (),
        tail: Tail | None = None,
        deleted: NDArray[np.bool_] | None = None,
    ) -> None:
        self.first, self.others, self.tail = first, tuple(others), tail
        self.rows = len(first) + sum(len(part.index) for part in others) + (len(tail.rows) if tail else 0)
        self._parts = [Part(first, 0), *others]
        self._deleted = [Deleted.of(part, deleted) for part in self._parts]

    def __len__(self) -> int:
        return self.rows

    @property
    def metric(self) -> str:
        """That of all its indexes."""
        return self.first.metric

    def search(self, queries: Vectors, k: int, options: Mapping[str, Any] | None = None) -> SearchResult:
        """The k nearest rows of each query that are not deleted; see `SearchIndex.search`.

        Args:
            queries: (n, dimension).
            k: How many.
            options: Of the first index.
        """
        found = _live(self._parts[0].index, self._deleted[0], queries, k, options)
        for part, deleted in zip(self._parts[1:], self._deleted[1:], strict=True):
            found = self._with(found, part, deleted, queries, k)
        return found if self.tail is None else self._with_tail(found, self.tail.rows, queries)

    def _with_tail(self, found: SearchResult, rows: ExactRows, queries: Vectors) -> SearchResult:
        device = found.ids.device
        asked = (
            queries.detach().float().cpu().numpy() if isinstance(queries, Tensor) else np.asarray(queries, np.float32)
        )
        before = found.distances.cpu().numpy(), found.ids.cpu().numpy()
        distances, ids = rows.merge(asked, before)
        if distances is before[0]:
            return found
        return SearchResult(torch.from_numpy(distances).to(device), torch.from_numpy(ids).to(device))

    def _with(self, found: SearchResult, part: Part, deleted: Deleted | None, queries: Vectors, k: int) -> SearchResult:
        """The k nearest of what was found and of a part.

        Usually few of them are in the part, so it is asked for few; for all of them where it had none but near ones.
        """
        few = min(k, max(FEW, math.ceil(2 * k * len(part.index) / max(self.rows, 1))))
        near = _numbered(_live(part.index, deleted, queries, few), part.start)
        merged = merge_results(found, near, k)
        if few < k:
            more = (near.ids[:, -1] >= 0) & (near.distances[:, -1] <= merged.distances[:, -1])
            if bool(more.any()):
                rows = more.nonzero().squeeze(1)
                asked = queries[rows if isinstance(queries, Tensor) else rows.cpu().numpy()]
                near = _numbered(_live(part.index, deleted, asked, k), part.start)
                better = merge_results(SearchResult(found.distances[rows], found.ids[rows]), near, k)
                merged.distances[rows], merged.ids[rows] = better.distances, better.ids
        return merged


def open_segmented(store: DatastoreFolder, name: str | None = None, before: SegmentedIndex | None = None) -> Any:
    """The index of that name, or the default one, with what was added and deleted since it was built.

    Args:
        store: The datastore.
        name: The name of the index.
        before: The same of an earlier generation: what did not change since is taken from it.
    """
    manifest = store.manifest
    name = name or str(manifest.default_index)
    folder, metric = store.index_folder(name), manifest.indexes[name].metric
    same = before is not None and getattr(before.first, "opened_from", None) == (folder, store.base.path)
    if before is not None and same:
        first = before.first
    else:
        first = load_index(store, name)
        first.opened_from = (folder, store.base.path)  # type: ignore[attr-defined]
    covered = len(first)
    starts = np.cumsum([0, *(info.tokens for info in manifest.segments.values())]).tolist()
    known = {} if before is None else {getattr(part.index, "opened_from", None): part.index for part in before.others}
    others, small = [], []
    for start, segment, info in zip(starts, store.segments, manifest.segments.values(), strict=False):
        if start < covered:
            continue
        if metric in info.indexes:
            own = segment.index_folder(metric)
            index = known.get(own) or INDEXES.get(info.indexes[metric]).load(own)
            index.opened_from = own  # type: ignore[attr-defined]
            if index.needs_keys:
                index.attach_keys(segment.keys)
            others.append(Part(index, start))
        else:
            small.append((segment.path, start, segment.keys))
    tail = tail_of(small, first.dimension, metric, store.deleted_entries, before.tail if before else None)
    return SegmentedIndex(first, others, tail, store.deleted_entries)


def tail_of(
    small: Sequence[tuple[Path, int, NDArray[Any]]],
    dimension: int,
    metric: str,
    deleted: NDArray[np.bool_] | None,
    before: Tail | None = None,
) -> Tail | None:
    """An exact index of some small segments.

    Args:
        small: The folder of each, the number of its first row, and its rows, (n, dimension).
        dimension: Of the rows.
        metric: "l2", "ip" or "cosine".
        deleted: Whether each row of the datastore is deleted; None: none is.
        before: That of an earlier generation, which is not changed.
    """
    if not small:
        return None
    places = tuple((path, start) for path, start, _ in small)
    known = len(before.segments) if before and before.segments == places[: len(before.segments)] else 0
    rows = before.rows if before and known else ExactRows(np.empty((0, dimension), small[0][2].dtype), _NO_IDS, metric)
    added = [(keys, np.arange(start, start + len(keys))) for _, start, keys in small[known:]]
    if added:
        rows = rows.with_rows(np.concatenate([keys for keys, _ in added]), np.concatenate([ids for _, ids in added]))
    if deleted is not None:
        rows = rows.without(deleted[rows.ids])
    return Tail(rows, places)


@dataclass(frozen=True)
class Deleted:
    """The rows of a part that are deleted."""

    rows: NDArray[np.bool_]  # whether each is
    share: float
    skipped: bool  # whether the index leaves them out by itself

    @classmethod
    def of(cls, part: Part, deleted: NDArray[np.bool_] | None) -> Deleted | None:
        """Those of a part; None: there are none."""
        if deleted is None:
            return None
        own = deleted[part.start : part.start + len(part.index)]
        return cls(own, float(own.mean()), part.index.skips_deleted) if own.any() else None

    def spare(self, k: int) -> int:
        """How many more than k have to be found for k to be left, nearly always."""
        expected = k * self.share / max(1 - self.share, 1 / len(self.rows))
        return math.ceil(expected + 3 * math.sqrt(expected))


def _live(
    index: SearchIndex,
    deleted: Deleted | None,
    queries: Vectors,
    k: int,
    options: Mapping[str, Any] | None = None,
    wide: int = 0,
) -> SearchResult:
    """The k nearest rows that are not deleted: some more are asked for, and many more where that was not enough."""
    if deleted is None:
        return index.search(queries, k, options)
    if deleted.skipped:
        return index.search(queries, k, options, deleted.rows)
    wide = min(wide or k + deleted.spare(k), max(len(index), k))
    found = index.search(queries, wide, options)
    ids = found.ids.cpu().numpy()
    gone = deleted.rows[ids]  # where there is none, -1, the last row answers, and it is as good to drop that
    if not gone.any():
        return SearchResult(found.distances[:, :k], found.ids[:, :k])
    order = np.argsort(gone, axis=1, kind="stable")[:, :k]
    left = ~np.take_along_axis(gone, order, axis=1)
    chosen, missing = torch.from_numpy(order).to(found.ids.device), torch.from_numpy(~left).to(found.ids.device)
    kept = SearchResult(
        found.distances.gather(1, chosen).masked_fill_(missing, torch.inf),
        found.ids.gather(1, chosen).masked_fill_(missing, -1),
    )
    # Where the last place is empty, there is nothing more to be had from this index.
    more = np.flatnonzero(~left[:, -1] & (ids[:, -1] >= 0))
    if wide < len(index) and len(more):
        rows = torch.from_numpy(more)
        asked = queries[rows.to(queries.device)] if isinstance(queries, Tensor) else queries[more]
        better = _live(index, deleted, asked, k, options, WIDENING * wide)
        kept.distances[rows], kept.ids[rows] = better.distances, better.ids
    return kept


def _numbered(found: SearchResult, start: int) -> SearchResult:
    return found if not start else SearchResult(found.distances, torch.where(found.ids >= 0, found.ids + start, -1))

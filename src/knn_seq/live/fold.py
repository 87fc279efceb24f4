"""Small segments folded into one, so that they stay few; with an index of its own when it has outgrown exact search."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.build.index import IndexPlace, build_index, index_kind
from knn_seq.build.pipeline import settings_of
from knn_seq.errors import IndexUnavailable
from knn_seq.index import INDEXES, discard_index
from knn_seq.index.base import DESCRIPTION
from knn_seq.index.on_server import OnServer
from knn_seq.index.stored import indexed_entries
from knn_seq.live.compact import compact
from knn_seq.live.copying import copy_segments, live_parts
from knn_seq.live.writing import commit, entries_of
from knn_seq.runtime.clock import now
from knn_seq.runtime.wording import count
from knn_seq.storage import DatastoreFolder, IndexInfo, Segment
from knn_seq.storage.atomic import read_json
from knn_seq.storage.keys import StoredRows
from knn_seq.storage.manifest import SegmentInfo
from knn_seq.storage.replacement import SEGMENTS, Replacement, discard_work

log = logging.getLogger(__name__)

# An exact search of so many entries adds about a tenth to that of a million in an index (benchmarks/live.py).
SMALL_ENTRIES = 1_000
GROWING_BYTES = 1 << 30  # of an index: a larger one is not written again for a few entries
MOST_SMALL = 16  # segments: each has files to open, and parts of arrays to look at
LIKE_SIZE = 4  # an indexed segment is folded with what is at least a quarter of it


def maintain(folder: DatastoreFolder) -> None:
    """Compact the datastore, or fold small segments, if so much was added and deleted that it pays.

    Args:
        folder: The datastore, whose lock the caller holds.
    """
    manifest = folder.manifest
    changed = sum(info.tokens for info in list(manifest.segments.values())[1:])
    changed += manifest.deleted.tokens if manifest.deleted else 0
    total, share = sum(info.tokens for info in manifest.segments.values()), manifest.build.auto_compact
    if share and changed > max(share * total, SMALL_ENTRIES) and manifest.counts.sentences:
        log.info("%s of %s were added or deleted: compacting.", f"{changed:,}", count(total, "entry", "entries"))
        compact(folder)
        return
    first = _first_to_fold(folder)
    if first is not None:
        try:
            fold(folder, first)
        except IndexUnavailable as error:
            log.warning("%s What was added is searched beside its index until it answers.", error)


def _first_to_fold(folder: DatastoreFolder) -> int | None:
    """The place of the segment that, with all behind it, is folded into one; None: none is."""
    infos = list(folder.manifest.segments.values())
    first = small = _first_small(folder)
    tokens = sum(info.tokens for info in infos[small:])
    if len(infos) - small <= MOST_SMALL and tokens <= SMALL_ENTRIES:
        return None
    if tokens > SMALL_ENTRIES:
        while first > 1 and infos[first - 1].tokens < LIKE_SIZE * tokens:
            first -= 1
            tokens += infos[first].tokens
    return first


def _first_small(folder: DatastoreFolder) -> int:
    """The place of the first segment that is searched exactly."""
    infos = list(folder.manifest.segments.values())
    first = len(infos)
    while first > 1 and not infos[first - 1].indexes and not _indexed(folder, first - 1):
        first -= 1
    return first


def _indexed(folder: DatastoreFolder, place: int) -> bool:
    """Whether all indexes have the entries of the segment at that place."""
    start = sum(info.tokens for info in list(folder.manifest.segments.values())[:place])
    return all(indexed_entries(folder, name) > start for name in folder.manifest.indexes)


def _first_not_in_index(folder: DatastoreFolder) -> int:
    """The place of the first segment whose entries none of the datastore's indexes has."""
    covered = max((indexed_entries(folder, name) for name in folder.manifest.indexes), default=0)
    starts = accumulate((info.tokens for info in folder.manifest.segments.values()), initial=0)
    return sum(start < covered for start in list(starts)[:-1])


def fold(folder: DatastoreFolder, first: int) -> None:
    """Fold the segment at that place and all behind it into one, without what is deleted of them.

    What an index has already stays complete, also what is deleted of it: there an entry's number is its place.

    Args:
        folder: The datastore, whose lock the caller holds.
        first: The place of the first segment.
    """
    manifest = folder.manifest
    names, infos = list(manifest.segments), list(manifest.segments.values())
    new_from = max(first, _first_not_in_index(folder))
    starts = list(accumulate((info.sentences for info in infos), initial=0))
    added = live_parts(folder.segments[new_from:], folder.deleted, starts[new_from])
    tokens = sum(len(part.entries) for part in added)
    before = sum(info.tokens for info in infos[:new_from])
    if new_from > first and (tokens <= SMALL_ENTRIES or not _all_may_grow(folder, before)):
        first = new_from  # a segment is in an index completely, or not at all
    parts = [*live_parts(folder.segments[first:new_from], folder.deleted[:0], starts[first]), *added]
    identity = {"fold": names[first:], "generation": manifest.generation}
    final = f"{SEGMENTS}/{manifest.next_segment}"
    replacement = Replacement(folder.path, f"{SEGMENTS}/fold", identity, None, final)
    replacement.prepare()
    pruned = any(part.segment.pruned for part in parts)
    new = Segment(replacement.new, pruned)
    indexes: dict[str, str] = {}
    if not replacement.complete and tokens:
        copy_segments(parts, new, identity, "fold", manifest.build.checkpoint_seconds)
    grown = dict(manifest.indexes)
    if tokens > SMALL_ENTRIES:
        grown, others = _grown(folder, new.keys[len(new.keys) - tokens :], before, identity)
        for metric in others:
            indexes[metric] = _index(folder, new, metric, replacement.complete)
    kept = dict(list(manifest.segments.items())[:first])
    if tokens:
        replacement.publish()
        sentences = sum(len(part.sentences) for part in parts)
        total = sum(info.tokens for info in infos[first:new_from]) + tokens
        kept[str(manifest.next_segment)] = SegmentInfo(sentences, total, now(), pruned, indexes)
        manifest.next_segment += 1
    else:
        discard_work(replacement.work, shutil.rmtree)
    manifest.segments, manifest.indexes = kept, grown
    deleted = folder.deleted[folder.deleted < starts[new_from]]
    commit(folder, manifest, deleted, entries_of(folder, deleted))


def _grown(
    folder: DatastoreFolder, keys: NDArray[Any], before: int, identity: dict[str, Any]
) -> tuple[dict[str, IndexInfo], set[str]]:
    """The datastore's indexes with entries added, and the metrics of those that cannot grow.

    They are encoded by what each index has learned, so that a search costs as much more as there are more entries.

    Args:
        folder: The datastore.
        keys: Those of the entries, (n, dimension).
        before: How many entries lie before them.
        identity: What their segment is made from.
    """
    grown, others = dict(folder.manifest.indexes), set()
    for name, info in folder.manifest.indexes.items():
        made = _grown_index(folder, name, info, keys, before, identity)
        if made is None:
            others.add(str(info.metric))
        else:
            grown[name] = made
    return grown, others


def _may_grow(folder: DatastoreFolder, name: str, before: int) -> bool:
    """Whether an index has all entries before that number, and is not too large to be written again."""
    info = folder.manifest.indexes[name]
    path = folder.path / info.folder / INDEXES.get(info.type).file_name
    return indexed_entries(folder, name) == before and path.stat().st_size <= GROWING_BYTES


def _all_may_grow(folder: DatastoreFolder, before: int) -> bool:
    """Whether all indexes that were added to before may be once more."""
    first = folder.manifest.segments[next(iter(folder.manifest.segments))].tokens
    names = [name for name in folder.manifest.indexes if indexed_entries(folder, name) > first]
    return all(_may_grow(folder, name, before) for name in names)


def _grown_index(
    folder: DatastoreFolder, name: str, info: IndexInfo, keys: NDArray[Any], before: int, identity: dict[str, Any]
) -> IndexInfo | None:
    if not _may_grow(folder, name, before):
        return None
    kind, path = INDEXES.get(info.type), folder.path / info.folder
    replacement = Replacement(folder.path, f"index/{name}", {**identity, "grows": info.folder}, info.folder)
    replacement.prepare(partial(discard_index, in_use_by=[path]))
    if not replacement.complete:
        index = kind.load(path, writable=True)
        if not index.growable:
            discard_work(replacement.work, shutil.rmtree)
            return None
        if isinstance(index, OnServer) and folder.manifest.deleted is not None:
            index.lacking = folder.manifest.deleted.tokens
        shutil.rmtree(replacement.new, ignore_errors=True)
        index.add(keys, np.arange(before, before + len(keys)))
        index.save(replacement.new)
    described = {name: value for name, value in read_json(replacement.new / DESCRIPTION).items() if name != "bytes"}
    return IndexInfo.from_dict({"type": info.type, **described, "folder": replacement.publish()})


def _index(folder: DatastoreFolder, new: Segment, metric: str, complete: bool) -> str:
    """Give a segment that is not published yet an index of its own; returns its type."""
    settings = replace(settings_of(folder.manifest), index_recipe="auto", distance_metric=metric, index_options={})
    entries, dimension = new.keys.shape
    kind = index_kind("auto", entries, dimension, metric)[0]
    if not complete and not (new.index_folder(metric) / "index.json").exists():
        place = IndexPlace(new.path, f"index/{metric}", None)
        build_index(StoredRows(new.keys_path.absolute()), place, settings, {"segment": new.path.name})
        discard_work(new.index_folder(metric).with_name(f".{metric}.building"), shutil.rmtree)
    return kind

"""Everything folded into one segment again, without what is deleted, and all that is made from it built anew."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from knn_seq.build.codes import store_codes
from knn_seq.build.engine import Engine, open_engine
from knn_seq.build.index import DEFAULT_INDEX, store_index
from knn_seq.build.pipeline import settings_of
from knn_seq.build.sentences import store_sentences
from knn_seq.errors import KnnSeqError
from knn_seq.live.copying import copy_segments, live_parts
from knn_seq.live.recall import RecallSample
from knn_seq.live.writing import WAIT_SECONDS, commit, writing
from knn_seq.runtime.clock import now
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, IndexInfo, Manifest, Segment, SubsetInfo
from knn_seq.storage.manifest import SegmentInfo
from knn_seq.storage.replacement import SEGMENTS, Replacement

log = logging.getLogger(__name__)


def compact_datastore(path: Path, settings: BuildSettings | None = None, wait: float = WAIT_SECONDS) -> bool:
    """Compact a datastore, or resume that.

    Args:
        path: Its folder.
        settings: The engine that builds indexes, and the memory that it may take.
        wait: Seconds to wait for another writer.

    Returns:
        Whether there was anything to do.
    """
    with writing(path, wait) as folder:
        if folder.manifest.compacted:
            log.info("%s is compact already; nothing was done.", path)
            return False
        compact(folder, settings)
        return True


def compact(folder: DatastoreFolder, settings: BuildSettings | None = None) -> None:
    """The same for a caller that holds the datastore's lock."""
    manifest = folder.manifest
    if not manifest.counts.sentences:
        raise KnnSeqError(f"All sentence pairs of {folder.path} are deleted: add some before it is compacted.")
    identity = {"compact": list(manifest.segments), "generation": manifest.generation}
    number = str(manifest.next_segment)
    pruned = any(segment.pruned for segment in folder.segments)
    replacement = Replacement(folder.path, f"{SEGMENTS}/compact", identity, None, f"{SEGMENTS}/{number}")
    replacement.prepare()
    parts = live_parts(folder.segments, folder.deleted)
    sample = RecallSample.of(folder)
    if not replacement.complete:
        new = Segment(replacement.new, pruned)
        copy_segments(parts, new, identity, "compact", manifest.build.checkpoint_seconds)
    segment = Segment(folder.path / replacement.publish(), pruned)
    engine_settings = settings or settings_of(manifest)
    with open_engine(engine_settings) as engine:
        build_parts(folder, manifest, segment, engine_settings, engine)
    manifest.segments = {number: SegmentInfo(len(segment), len(segment.keys), now(), pruned)}
    manifest.next_segment += 1
    commit(folder, manifest, folder.deleted[:0], 0)
    sample.report(folder)


def build_parts(
    folder: DatastoreFolder, manifest: Manifest, segment: Segment, settings: BuildSettings, engine: Engine
) -> None:
    """Build all indexes that a manifest lists, and what subset search needs, for another first segment.

    Args:
        folder: The datastore.
        manifest: The one to change; what it names before is not touched.
        segment: The first segment to be.
        settings: Whose engine and memory limit are used.
        engine: Who works.
    """
    for name, info in list(manifest.indexes.items()):
        wanted = index_settings(manifest, name, info, settings)
        manifest.indexes[name] = store_index(folder, wanted, name, engine, segment)
    if manifest.subset is not None:
        manifest.subset = build_subset(folder, manifest.subset, segment, settings, engine)


def index_settings(manifest: Manifest, name: str, info: IndexInfo, settings: BuildSettings) -> BuildSettings:
    """How an index of that description is built again."""
    recipe = info.type if info.recipe is None else f"{info.type}:{info.recipe}"
    if name == DEFAULT_INDEX and manifest.build.index_recipe == "auto" and info.type == "faiss":
        recipe = "auto"  # another one may fit another number of keys
    return replace(settings, index_recipe=recipe, distance_metric=info.metric, index_options=info.options)


def build_subset(
    folder: DatastoreFolder, before: SubsetInfo, segment: Segment, settings: BuildSettings, engine: Engine
) -> SubsetInfo:
    """Prepare a first segment for subset search as another one was; vectors of its sentences are there."""
    wanted = replace(
        settings,
        sentence_search=before.sentence_search,
        sentence_index_recipe=before.requested_sentence_index,
        codes=before.requested_codes,
    )
    codes = store_codes(folder, segment, wanted, "cpu")
    sentences = store_sentences(folder, segment, None, wanted, engine)
    return SubsetInfo(
        before.sentence_search, before.requested_sentence_index, before.requested_codes, **codes, **sentences
    )

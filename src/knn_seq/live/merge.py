"""Two datastores of the same model in a third one: keys are copied and not computed again."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from knn_seq.build.engine import open_engine
from knn_seq.build.ids import make_ids_unique
from knn_seq.build.index import store_index
from knn_seq.build.pipeline import settings_of
from knn_seq.errors import InvalidSetting, KnnSeqError, ModelMismatch
from knn_seq.live.compact import build_subset, index_settings
from knn_seq.live.copying import Chosen, copy_segments, json_identity, live_parts
from knn_seq.live.writing import clean
from knn_seq.runtime.clock import now
from knn_seq.settings import BuildSettings
from knn_seq.storage import Counts, DatastoreFolder, Manifest
from knn_seq.storage.atomic import disk_errors, partial_of, publish
from knn_seq.storage.manifest import MANIFEST_NAME, STEPS, CorpusInfo, SegmentInfo, StepInfo

log = logging.getLogger(__name__)


def merge_datastores(stores: Sequence[DatastoreFolder], output: Path, settings: BuildSettings | None = None) -> bool:
    """Make one datastore of all sentence pairs of several, or resume that; these stay as they are.

    Settings, combiners, indexes and the preparation for subset search are those of the first one.

    Args:
        stores: The datastores.
        output: The folder of the new one.
        settings: The engine that builds indexes, and the memory that it may take.

    Returns:
        Whether there was anything to do.
    """
    stores = [store.snapshot() for store in stores]
    _require_mergeable(stores, output)
    folder = DatastoreFolder(output)
    with disk_errors(output), folder.lock():
        manifest = _open_manifest(folder, stores)
        if manifest.unfinished_step() is None:
            log.info("%s is complete already; nothing was done.", output)
            return False
        _merge(folder, stores, settings or settings_of(manifest))
        return True


def _merge(folder: DatastoreFolder, stores: Sequence[DatastoreFolder], settings: BuildSettings) -> None:
    clean(folder)
    manifest, first, segment = folder.manifest, stores[0], folder.base
    if manifest.steps["keys"].state != "done":
        parts: list[Chosen] = [part for store in stores for part in live_parts(store.segments, store.deleted)]
        copy_segments(parts, segment, manifest.corpus.identity, "merge", settings.checkpoint_seconds)
        make_ids_unique(segment)
        [info] = manifest.segments.values()
        info.sentences, info.tokens = len(segment), len(segment.keys)
        manifest.counts = Counts(info.sentences, info.tokens, manifest.counts.rejected)
        _done(folder, manifest, "text", "keys")
    with open_engine(settings) as engine:
        if manifest.steps["index"].state != "done":
            for name, index in first.manifest.indexes.items():
                wanted = index_settings(first.manifest, name, index, settings)
                manifest.indexes[name] = store_index(folder, wanted, name, engine)
            manifest.default_index = first.manifest.default_index
            _done(folder, manifest, "index")
        if manifest.subset is None and first.manifest.subset is not None and _same_search(stores):
            manifest.subset = build_subset(folder, first.manifest.subset, segment, settings, engine)
    _copy_combiners(folder, manifest, first)
    _done(folder, manifest, "defaults", "combiner")


def _done(folder: DatastoreFolder, manifest: Manifest, *steps: str) -> None:
    for step in steps:
        manifest.steps[step] = StepInfo("done")
    folder.save(manifest)
    clean(folder)


def _copy_combiners(folder: DatastoreFolder, manifest: Manifest, first: DatastoreFolder) -> None:
    """Combiners and settings of the first datastore; how much has changed since they were trained shows in `info`."""
    for name in first.manifest.combiner_files():
        folder.combiners_path.mkdir(exist_ok=True)
        path = folder.combiners_path / name
        shutil.copyfile(first.combiners_path / name, partial_of(path))
        publish(partial_of(path), path)
    manifest.combiners = first.manifest.combiners
    manifest.defaults, manifest.tuned = first.manifest.defaults, first.manifest.tuned


def _same_search(stores: Sequence[DatastoreFolder]) -> bool:
    """Whether subset search can be prepared as it is in the first one, without a model."""
    first = stores[0].manifest.subset
    if first is None:
        return False
    if first.vectors_folder is None:
        return True
    raw = [segment.raw_sentences_path for store in stores for segment in store.segments]
    same = all(path.exists() for path in raw) and all(json_identity(raw[0]) == json_identity(path) for path in raw)
    if not same:
        log.info("Not all datastores are prepared for subset search alike: the new one is not prepared.")
    return same


def _require_mergeable(stores: Sequence[DatastoreFolder], output: Path) -> None:
    if len(stores) < 2:
        raise InvalidSetting("Give at least two datastores to merge.")
    first = stores[0].manifest
    for store in stores:
        store.require_complete()
        if store.path.resolve() == output.resolve():
            raise InvalidSetting(f"{output} is one of the datastores to merge: choose another folder for the new one.")
        for name in ("fingerprint", "vocabulary", "source_lang", "target_lang", "prompt"):
            if getattr(store.manifest.model, name) != getattr(first.model, name):
                raise ModelMismatch(
                    f"{store.path} was made with another model ({store.manifest.model.spec}) than {stores[0].path} "
                    f"({first.model.spec}): only keys of the same model can be merged."
                )
        if store.manifest.keys != first.keys:
            raise ModelMismatch(f"The keys of {store.path} and of {stores[0].path} are not of the same kind.")


def _open_manifest(folder: DatastoreFolder, stores: Sequence[DatastoreFolder]) -> Manifest:
    identity = {"merged": [[os.path.abspath(store.path), store.manifest.generation] for store in stores]}
    if folder.exists():
        if folder.manifest.corpus.identity != identity:
            raise KnnSeqError(f"{folder.path} already holds another datastore: choose another folder.")
        return folder.manifest
    ours = {".lock", partial_of(folder.path / MANIFEST_NAME).name}
    if set(os.listdir(folder.path)) - ours:
        raise KnnSeqError(f"{folder.path} is not empty and is no datastore: choose another folder.")
    first = stores[0].manifest
    rejected: dict[str, int] = {}
    for store in stores:
        for reason, number in store.manifest.counts.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + number
    pruned = any(segment.pruned for store in stores for segment in store.segments)
    manifest = Manifest(
        model=first.model,
        keys=first.keys,
        corpus=CorpusInfo(identity, " and ".join(store.manifest.corpus.description for store in stores)),
        build=first.build,
        counts=Counts(rejected=rejected),
        segments={"1": SegmentInfo(date=now(), pruned=pruned)},
        next_segment=2,
        added=first.changes + sum(store.manifest.counts.sentences for store in stores[1:]),
        pruned=first.pruned,
        steps={step: StepInfo("waiting") for step in STEPS},
    )
    folder.save(manifest)
    return manifest

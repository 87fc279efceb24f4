"""A datastore to a smaller one: evidence, selection, the entries that stay, and the steps of a build that are left."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from knn_seq.build.pipeline import finish_datastore, settings_of
from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.models import Model
from knn_seq.prune.base import PRUNING_METHODS, PruningMethod
from knn_seq.prune.evidence import gather_evidence
from knn_seq.prune.write import write_entries
from knn_seq.runtime.clock import now
from knn_seq.settings import BuildSettings
from knn_seq.storage import Counts, DatastoreFolder, Manifest
from knn_seq.storage.atomic import disk_errors, partial_of
from knn_seq.storage.manifest import MANIFEST_NAME, STEPS, PruningInfo, SegmentInfo, StepInfo

log = logging.getLogger(__name__)

METHOD, KEEP = "known", 0.6
EVIDENCE_FOLDER = "pruning"  # what is known of each entry; there only until the entries that stay are written
HASHED = 1 << 20  # items at a time


def prune_datastore(
    source: DatastoreFolder,
    output: str | Path,
    model: Model,
    method: str = METHOD,
    keep: float = KEEP,
    options: Mapping[str, Any] | None = None,
    checkpoint_seconds: float = BuildSettings.checkpoint_seconds,
) -> bool:
    """Make a datastore of some of the entries of another one, or resume that.

    Args:
        source: The larger one, which stays as it is.
        output: The folder of the smaller one.
        model: The one that the keys were made with.
        method: Decides which entries stay.
        keep: The share of the entries that stays.
        options: Those that the method declares.
        checkpoint_seconds: The most work that a kill may cost.

    Returns:
        Whether there was anything to do.
    """
    chosen = check_pruning(source, output, method, keep, options)
    info = PruningInfo(
        source=os.path.abspath(source.path),
        fingerprint=fingerprint(source),
        entries=len(source),
        method=method,
        keep=keep,
        options=chosen.option_values,
    )
    folder, settings = DatastoreFolder(output), _settings(source)
    with disk_errors(folder.path), folder.lock():
        _open_manifest(folder, source, info)
        pruned = folder.manifest.steps["keys"].state != "done"
        if pruned:
            _prune(source, folder, model, chosen, checkpoint_seconds)
        shutil.rmtree(folder.path / EVIDENCE_FOLDER, ignore_errors=True)
        if folder.manifest.subset is not None:  # it may have been prepared anew since
            settings = replace(settings, sentence_search=None)
        return finish_datastore(folder, model, settings) or pruned


def check_pruning(
    source: DatastoreFolder, output: str | Path, method: str, keep: float, options: Mapping[str, Any] | None = None
) -> PruningMethod:
    """The method; raises a `KnnSeqError` at once, before a model is loaded, if the datastore cannot be pruned so."""
    if not 0 < keep <= 1:
        raise InvalidSetting(f"The share of the entries to keep must be above 0 and at most 1, not {keep:g}.")
    chosen = PRUNING_METHODS.get(method)(options)
    source.require_complete()
    source.require_compacted("pruned")
    if Path(output).resolve() == source.path.resolve():
        raise InvalidSetting(f"{output} is the datastore to prune: choose another folder for the smaller one.")
    folder = DatastoreFolder(output)
    if folder.exists():
        stored, has_entries = folder.manifest.pruned, folder.manifest.steps["keys"].state == "done"
        wanted = (method, keep, chosen.option_values)
        if stored is None or (has_entries and (stored.method, stored.keep, stored.options) != wanted):
            raise KnnSeqError(f"{folder.path} already holds another datastore: choose another folder.")
    elif folder.path.exists():
        ours = {".lock", partial_of(folder.path / MANIFEST_NAME).name}  # of a run that was killed at its very beginning
        if not folder.path.is_dir() or set(os.listdir(folder.path)) - ours:
            raise KnnSeqError(f"{folder.path} is not empty and is no datastore: choose another folder.")
    return chosen


def fingerprint(store: DatastoreFolder) -> str:
    """Tells whether two datastores have the same entries: of the same model, text and pruning."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(store.manifest.model.fingerprint.encode())
    for items in (store.values.offsets, store.values.items, store.positions, store.counts):
        for start in range(0, 0 if items is None else len(items), HASHED):
            assert items is not None
            digest.update(items[start : start + HASHED].tobytes())
    return digest.hexdigest()


def _prune(
    source: DatastoreFolder, folder: DatastoreFolder, model: Model, method: PruningMethod, checkpoint_seconds: float
) -> None:
    manifest = folder.manifest
    assert manifest.pruned is not None
    identity = {"source": manifest.pruned.fingerprint}
    started = time.monotonic()
    evidence = gather_evidence(source, model, method, folder.path / EVIDENCE_FOLDER, identity, checkpoint_seconds)
    keep = max(round(manifest.pruned.keep * len(source)), 1)
    selection = method.select(evidence, keep)
    assert int(selection.kept.sum()) == keep
    write_entries(source, folder, selection, checkpoint_seconds)
    log.info("%s: %d of %d entries stay (%.0f s).", folder.path, keep, len(source), time.monotonic() - started)
    manifest.counts = Counts(
        sentences=source.manifest.counts.sentences, tokens=keep, rejected=source.manifest.counts.rejected
    )
    [segment] = manifest.segments.values()
    segment.sentences, segment.tokens = manifest.counts.sentences, keep
    for step in ("text", "keys"):
        manifest.steps[step] = StepInfo("done")
    folder.save(manifest)


def _settings(source: DatastoreFolder) -> BuildSettings:
    """Those that the source was built with, and its preparation for subset search."""
    settings, subset = settings_of(source.manifest), source.manifest.subset
    if subset is None:
        return replace(settings, sentence_search=None)
    return replace(
        settings,
        sentence_search=subset.sentence_search,
        sentence_index_recipe=subset.requested_sentence_index,
        codes=subset.requested_codes,
    )


def _open_manifest(folder: DatastoreFolder, source: DatastoreFolder, info: PruningInfo) -> None:
    """Save the manifest of a new datastore, or raise a `KnnSeqError` if there is one from another source.

    Until its entries are written, a datastore may still become one of another method or share: what is known of the
    source's entries is not gathered again.
    """
    if folder.exists():
        stored = folder.manifest.pruned
        if stored is None or stored.fingerprint != info.fingerprint:
            raise KnnSeqError(f"{folder.path} already holds another datastore: choose another folder.")
        if folder.manifest.steps["keys"].state == "done":
            return
    of_source = source.manifest
    manifest = Manifest(
        model=of_source.model,
        keys=of_source.keys,
        corpus=of_source.corpus,
        build=of_source.build,
        pruned=info,
        segments={"1": SegmentInfo(date=now(), pruned=True)},
        next_segment=2,
        steps={step: StepInfo("waiting") for step in STEPS},
    )
    folder.save(manifest)

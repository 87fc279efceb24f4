"""Where a datastore keeps its trained combiners."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from knn_seq.decoding import settings_name
from knn_seq.settings import with_value
from knn_seq.storage import CombinerInfo, DatastoreFolder, Manifest
from knn_seq.storage.atomic import disk_errors, partial_of, publish
from knn_seq.storage.manifest import StoredSettings
from knn_seq.train.run import Training


def store_combiner(store: DatastoreFolder, training: Training, as_default: bool) -> None:
    """Keep a trained combiner, and let translations that ask for its parts use it.

    Args:
        store: The datastore, which nobody has locked.
        training: The combiner.
        as_default: Let all translations use it that name no other parts.
    """
    with disk_errors(store.path), store.lock():
        manifest = Manifest.load(store.path)
        add_combiner(store, manifest, training, as_default)
        store.save(manifest)
        drop_unlisted(store)


def add_combiner(store: DatastoreFolder, manifest: Manifest, training: Training, as_default: bool) -> None:
    """Write the weights of a trained combiner and list it in a manifest, which the caller saves."""
    settings, combiner, skip = training.settings, training.combiner, training.skip
    folder = store.combiners_path
    folder.mkdir(exist_ok=True)
    manifest.combiners[settings_name(settings)] = CombinerInfo(
        type=settings.combiner,
        file=_written(folder / settings.combiner, combiner.save),
        k=combiner.shape.k,
        metric=manifest.searched_metric(settings.retriever, settings.index),
        tokens=training.tokens,
        general_sentences=training.general_sentences,
        seed=training.seed,
        log_likelihoods={name: round(value, 4) for name, value in training.log_likelihoods.items()},
        skip_file=None if skip is None else _written(folder / f"{settings.combiner}-skip", skip.network.save),
        skip_saves=0.0 if skip is None else round(skip.saved, 4),
        changes=manifest.changes,
    )
    chosen = cast(StoredSettings, {**with_value(settings), **_median(manifest)})
    manifest.tuned[settings_name(settings)] = chosen
    if as_default:
        manifest.defaults = chosen


def _written(path: Path, save: Callable[[Path], None]) -> str:
    """Write weights and say what their file is called: after what is in it, so that no listed file ever changes."""
    partial = partial_of(path)
    save(partial)
    digest = hashlib.sha256(partial.read_bytes()).hexdigest()[:12]
    final = path.with_name(f"{path.name}-{digest}.safetensors")
    publish(partial, final)
    return final.name


def drop_unlisted(store: DatastoreFolder) -> None:
    """Delete weights that the manifest does not list: replaced ones, and those of a training that was killed."""
    listed = store.manifest.combiner_files()
    for path in store.combiners_path.glob("*"):
        if path.name not in listed:
            path.unlink()


def _median(manifest: Manifest) -> StoredSettings:
    median = manifest.defaults.get("median_distance")
    return {} if median is None else {"median_distance": median}

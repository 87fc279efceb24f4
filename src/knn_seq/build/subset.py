"""What subset search needs beyond keys and values: similar sentences, and keys as codes."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from knn_seq.build.codes import distance_metric_of, store_codes
from knn_seq.build.engine import Engine
from knn_seq.build.index import index_kind
from knn_seq.build.sentences import store_sentences
from knn_seq.index import INDEXES, delete_unused
from knn_seq.index.recipe import REFINE_KEYS
from knn_seq.models import Model, Source
from knn_seq.sentences import SentenceSearch, VectorSearch
from knn_seq.sentences.base import absolute_spec, sentence_search
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, SubsetInfo
from knn_seq.storage.atomic import disk_errors, partial_of
from knn_seq.storage.keys import progress_of
from knn_seq.storage.replacement import SUBSET_PARTS
from knn_seq.subset.codec import EXACT, KeyCodec

log = logging.getLogger(__name__)

MANY_SENTENCES = 1_000_000  # enough for every recipe that is valid at all


def prepare_subset(path: str | Path, model: Model, settings: BuildSettings) -> bool:
    """Prepare a finished datastore for subset search, or resume that.

    Args:
        path: The datastore's folder.
        model: The one that its keys were made with.
        settings: Which sentence search, which index of sentence vectors and which codes.

    Returns:
        Whether there was anything to do.
    """
    folder = DatastoreFolder(path)
    folder.require_complete()
    with disk_errors(folder.path), folder.lock():
        folder = DatastoreFolder(path)
        folder.require_compacted("prepared for subset search")
        delete_unused(folder)
        return store_subset(folder, model, settings)


def check_subset_settings(model: Model, settings: BuildSettings, distance_metric: str) -> None:
    """Raise a `KnnSeqError` at once, not after hours, if subset search cannot be prepared with these settings."""
    search: SentenceSearch = sentence_search(settings.sentence_search or "encoder", model)
    if settings.codes not in ("auto", EXACT):
        KeyCodec(model.dimension, distance_metric, settings.codes.removesuffix(REFINE_KEYS))
    if isinstance(search, VectorSearch):
        text = "1 2 3"
        width = search.encode([Source(text, model.tokenizer.encode_sources([text])[0])]).shape[1]
        kind, recipe = index_kind(settings.sentence_index_recipe, MANY_SENTENCES, width)
        INDEXES.get(kind)(width, "l2", recipe)


def store_subset(folder: DatastoreFolder, model: Model, settings: BuildSettings, engine: Engine | None = None) -> bool:
    """The same as `prepare_subset`, for a caller that holds the datastore's lock."""
    manifest = folder.manifest
    settings = replace(settings, sentence_search=absolute_spec(settings.sentence_search or "encoder"))
    requested: dict[str, Any] = {
        "sentence_search": settings.sentence_search,
        "requested_sentence_index": settings.sentence_index_recipe,
        "requested_codes": settings.codes,
    }
    if manifest.subset and all(getattr(manifest.subset, name) == value for name, value in requested.items()):
        log.info("%s is prepared for these subsets already; nothing was done.", folder.path)
        _delete_leftovers(folder)
        return False
    check_subset_settings(model, settings, distance_metric_of(folder))
    codes = store_codes(folder, folder.base, settings, getattr(model, "device", "cpu"))
    sentences = store_sentences(folder, folder.base, model, settings, engine)
    manifest.subset = SubsetInfo(**requested, **codes, **sentences)
    folder.save(manifest)
    folder.reload()
    _delete_leftovers(folder)
    return True


def _delete_leftovers(folder: DatastoreFolder) -> None:
    """What the preparation that is finished has replaced, and those of which others were killed."""
    delete_unused(folder, *SUBSET_PARTS)
    raw = folder.base.raw_sentences_path
    by_vectors = folder.prepared_subset().vectors_folder is not None  # a compaction whitens them again
    for path in (partial_of(raw), progress_of(raw), *([] if by_vectors else [raw])):
        path.unlink(missing_ok=True)

"""What finds the sentences of a datastore that are like another."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

from knn_seq.build.engine import Engine
from knn_seq.build.index import IndexPlace, build_index, origin
from knn_seq.build.sentence_vectors import VECTORS, store_vectors
from knn_seq.build.sources import StoredSources
from knn_seq.models import Model
from knn_seq.runtime.progress import Progress
from knn_seq.sentences import LexicalSearch, SentenceSearch, VectorSearch
from knn_seq.sentences.base import sentence_search
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, Segment
from knn_seq.storage.atomic import disk_errors
from knn_seq.storage.folder import SENTENCES_NAME
from knn_seq.storage.keys import StoredRows
from knn_seq.storage.manifest import SentenceIndexInfo
from knn_seq.storage.replacement import Replacement

FOLDER = "sentences"


def store_sentences(
    folder: DatastoreFolder,
    segment: Segment,
    model: Model | None,
    settings: BuildSettings,
    engine: Engine | None = None,
) -> dict[str, Any]:
    """Build the sentence search that the settings name, or resume that; returns what the manifest is to say of it.

    Args:
        folder: The datastore.
        segment: Whose sentences are found.
        model: Encodes them; None: all vectors of them are there.
        settings: Which search.
        engine: Who fills an index.
    """
    search: SentenceSearch = sentence_search(settings.sentence_search or "encoder", model)
    subset = folder.manifest.subset
    place = IndexPlace(folder.path, FOLDER, subset.sentence_index.folder if subset else None)
    if isinstance(search, VectorSearch):
        return _store_vector_search(folder, segment, place, search, settings, engine)
    assert isinstance(search, LexicalSearch)
    return {"sentence_index": _store_lexical_search(folder, segment, place, search, settings)}


def _store_vector_search(
    folder: DatastoreFolder,
    segment: Segment,
    place: IndexPlace,
    search: VectorSearch,
    settings: BuildSettings,
    engine: Engine | None,
) -> dict[str, Any]:
    vectors, identity = store_vectors(folder, segment, search, settings)
    chosen = replace(settings, index_recipe=settings.sentence_index_recipe, distance_metric="l2", index_options={})
    rows = StoredRows((folder.path / vectors / SENTENCES_NAME).absolute(), VECTORS)
    index = build_index(rows, place, chosen, identity, engine, "sentence index")
    return {"vectors_folder": vectors, "sentence_index": SentenceIndexInfo.from_dict(index)}


def _store_lexical_search(
    folder: DatastoreFolder, segment: Segment, place: IndexPlace, search: LexicalSearch, settings: BuildSettings
) -> SentenceIndexInfo:
    identity = origin(folder, segment) | {"sentence_search": settings.sentence_search}
    replacement = Replacement(*place[:2], identity, place.in_use)
    replacement.prepare()
    if not replacement.complete:
        with Progress(f"sentences {settings.sentence_search}", len(segment), "sentence") as progress:
            search.fit(StoredSources(segment))
            progress.update(len(segment))
        shutil.rmtree(replacement.new, ignore_errors=True)
        replacement.new.mkdir()
        with disk_errors(replacement.new):
            search.save(replacement.new)
    return SentenceIndexInfo("lexical", replacement.publish())

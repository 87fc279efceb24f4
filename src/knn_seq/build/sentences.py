"""What finds the sentences of a datastore that are like another."""

from __future__ import annotations

import shutil
from dataclasses import replace

from knn_seq.build.engine import Engine
from knn_seq.build.index import build_index
from knn_seq.build.sentence_vectors import VECTORS, store_vectors, vectors_identity
from knn_seq.build.sources import StoredSources
from knn_seq.models import Model
from knn_seq.runtime.progress import Progress
from knn_seq.sentences import LexicalSearch, SentenceSearch, VectorSearch
from knn_seq.sentences.base import sentence_search
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.atomic import partial_of, publish_folder
from knn_seq.storage.keys import StoredRows
from knn_seq.storage.manifest import SentenceIndexInfo


def store_sentences(
    folder: DatastoreFolder, model: Model, settings: BuildSettings, engine: Engine | None = None
) -> SentenceIndexInfo:
    """Build the sentence search that the settings name, or resume that; returns its description for the manifest."""
    search: SentenceSearch = sentence_search(settings.sentence_search or "encoder", model)
    if isinstance(search, VectorSearch):
        return _store_vector_search(folder, search, settings, engine)
    assert isinstance(search, LexicalSearch)
    return _store_lexical_search(folder, search, settings)


def _store_vector_search(
    folder: DatastoreFolder, search: VectorSearch, settings: BuildSettings, engine: Engine | None
) -> SentenceIndexInfo:
    store_vectors(folder, search, settings)
    chosen = replace(settings, index_recipe=settings.sentence_index_recipe, distance_metric="l2", index_options={})
    rows = StoredRows(folder.sentences_path.absolute(), VECTORS)
    identity = vectors_identity(folder, settings)
    index = build_index(rows, folder.sentence_index_folder, chosen, identity, engine, "sentence index")
    return SentenceIndexInfo.from_dict(index.to_dict())


def _store_lexical_search(folder: DatastoreFolder, search: LexicalSearch, settings: BuildSettings) -> SentenceIndexInfo:
    with Progress(f"sentences {settings.sentence_search}", len(folder.values), "sentence") as progress:
        search.fit(StoredSources(folder))
        progress.update(len(folder.values))
    _publish(search, folder)
    for path in (folder.sentences_path, folder.raw_sentences_path, folder.whitening_path):
        path.unlink(missing_ok=True)
        partial_of(path).unlink(missing_ok=True)
    return SentenceIndexInfo("lexical")


def _publish(search: LexicalSearch, folder: DatastoreFolder) -> None:
    final = folder.sentence_index_folder
    work, replaced = final.with_name(".sentences.building"), final.with_name(".sentences.replaced")
    for leftover in (work, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    work.mkdir()
    search.save(work)
    if final.exists():
        final.rename(replaced)
    publish_folder(work, final)
    shutil.rmtree(replaced, ignore_errors=True)

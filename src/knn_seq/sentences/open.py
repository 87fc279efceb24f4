from __future__ import annotations

from knn_seq.index import INDEXES
from knn_seq.models import Model
from knn_seq.sentences.base import SentenceSearch, sentence_search
from knn_seq.sentences.lexical import LexicalSearch
from knn_seq.sentences.vectors import VectorSearch
from knn_seq.sentences.whitening import Whitening
from knn_seq.storage import DatastoreFolder


def open_sentences(store: DatastoreFolder, model: Model) -> SentenceSearch:
    """The sentence search of a datastore that was prepared for subset search."""
    return store.open_named(lambda: _open(store, model))


def _open(store: DatastoreFolder, model: Model) -> SentenceSearch:
    prepared, folder = store.prepared_subset(), store.sentence_index_folder
    search: SentenceSearch = sentence_search(prepared.sentence_search, model)
    if isinstance(search, VectorSearch):
        search.whitening = Whitening.load(store.whitening_path)
        search.index = INDEXES.get(prepared.sentence_index.type).load(folder)
        if search.index.needs_keys:
            search.index.attach_keys(store.sentence_vectors)
    elif isinstance(search, LexicalSearch):
        search.load(folder)
    return search

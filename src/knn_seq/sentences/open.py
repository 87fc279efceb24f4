from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from knn_seq.index import INDEXES
from knn_seq.index.segmented import SegmentedIndex, tail_of
from knn_seq.models import Model
from knn_seq.sentences.base import SentenceSearch, sentence_search
from knn_seq.sentences.lexical import LexicalSearch, WordScores
from knn_seq.sentences.vectors import VectorSearch
from knn_seq.sentences.whitening import Whitening
from knn_seq.storage import DatastoreFolder, Segment, open_keys


def open_sentences(store: DatastoreFolder, model: Model, before: SentenceSearch | None = None) -> SentenceSearch:
    """The sentence search of a datastore that was prepared for subset search.

    It finds what was added since, and nothing that was deleted.

    Args:
        store: The datastore.
        model: The translation model.
        before: The search of an earlier generation: what did not change since is taken from it.
    """
    return store.open_named(lambda: _open(store, model, before))


def _open(store: DatastoreFolder, model: Model, before: SentenceSearch | None) -> SentenceSearch:
    prepared, folder = store.prepared_subset(), store.sentence_index_folder
    search: SentenceSearch = sentence_search(prepared.sentence_search, model)
    same = getattr(before, "opened_from", None) == folder
    if same and isinstance(before, SentenceSearch):
        search.__dict__.update(before.__dict__)
    search.opened_from = folder  # type: ignore[attr-defined]
    deleted = _deleted(store)
    if isinstance(search, VectorSearch):
        if not same:
            search.whitening = Whitening.load(store.whitening_path)
        index = search.index if same else None
        first = index.first if isinstance(index, SegmentedIndex) else None
        if first is None:
            first = INDEXES.get(prepared.sentence_index.type).load(folder)
            if first.needs_keys:
                first.attach_keys(store.sentence_vectors)
        small = [(segment.path, start, _vectors(search, segment)) for start, segment in _added(store)]
        known = index.tail if isinstance(index, SegmentedIndex) else None
        tail = tail_of(small, first.dimension, first.metric, deleted, known)
        search.index = SegmentedIndex(first, (), tail, deleted)
    elif isinstance(search, LexicalSearch):
        if not same:
            search.load(folder)
        scored: dict[Path, WordScores] = dict(getattr(search, "scored", {}))
        added = _added(store)
        for _, segment in added:
            if segment.path not in scored:
                texts = [segment.texts[number][0] for number in range(len(segment))]
                scored[segment.path] = search.score_others(texts)
        search.scored = {segment.path: scored[segment.path] for _, segment in added}  # type: ignore[attr-defined]
        search.added = [(start, scored[segment.path]) for start, segment in added]
        search.deleted = deleted
    return search


def _added(store: DatastoreFolder) -> list[tuple[int, Segment]]:
    """All segments but the first, and where their sentences begin."""
    starts = np.cumsum([len(segment) for segment in store.segments]).tolist()
    return list(zip(starts, store.segments[1:], strict=False))


def _deleted(store: DatastoreFolder) -> NDArray[np.bool_] | None:
    if not len(store.deleted):
        return None
    deleted = np.zeros(sum(map(len, store.segments)), bool)
    deleted[store.deleted] = True
    return deleted


def _vectors(search: VectorSearch, segment: Segment) -> NDArray[np.float32]:
    """The vectors of a segment's sentences as they are compared, (sentences, dimension)."""
    raw = open_keys(segment.raw_sentences_path, "vectors")
    rows = torch.from_numpy(raw.copy())
    compared: NDArray[np.float32] = search.transform(rows).to(rows.dtype).float().numpy()
    return compared

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from knn_seq.errors import InvalidSetting
from knn_seq.live.fold import maintain
from knn_seq.live.lookup import Lookup
from knn_seq.live.on_server import forget_deleted
from knn_seq.live.writing import WAIT_SECONDS, commit, entries_of, writing


def delete_pairs(
    path: Path,
    ids: Collection[str] = (),
    corpus: str | None = None,
    source: str | None = None,
    wait: float = WAIT_SECONDS,
) -> list[str]:
    """Delete sentence pairs from a datastore: those with one of the ids, from the corpus, or with the source.

    Those that are not there are passed over, so that a deletion may be repeated.

    Args:
        path: The datastore's folder.
        ids: Ids of sentence pairs.
        corpus: The name of a corpus.
        source: The complete text of a source.
        wait: Seconds to wait for another writer.

    Returns:
        The ids of the deleted sentence pairs.
    """
    if isinstance(ids, str):
        raise InvalidSetting("Give ids as a list, also if it is one.")
    if not ids and corpus is None and source is None:
        raise InvalidSetting("Say what is to be deleted: ids, a corpus, or a source.")
    with writing(path, wait) as folder:
        lookup = Lookup(folder)
        numbers = {number for found in lookup.by_id(list(ids)).values() for number in found}
        if corpus is not None:
            numbers.update(lookup.by_corpus(corpus))
        if source is not None:
            numbers.update(number for found in lookup.by_source([source]).values() for number in found)
        if not numbers:
            return []
        gone = [folder.pairs[number].id for number in sorted(numbers)]
        deleted = np.union1d(folder.deleted, np.array(sorted(numbers), np.int64))
        manifest = folder.manifest
        manifest.removed += len(gone)
        commit(folder, manifest, deleted, entries_of(folder, deleted))
        forget_deleted(folder, np.array(sorted(numbers), np.int64))
        maintain(folder)
        return gone

"""Entries lie in the order of the corpus: what follows one in its sentence is the next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knn_seq.storage.folder import DatastoreFolder


def next_entries(store: DatastoreFolder, entries: NDArray[np.int64]) -> NDArray[np.int64]:
    """The entry of the token behind each entry's own, same shape; -1 where there is none.

    There is none behind the last token of a sentence, nor where a pruned datastore has left it out or it was deleted.

    Args:
        store: The datastore.
        entries: Numbers of entries, none of them -1.
    """
    following = entries + 1
    there = following < store.values.offsets[store.values.row_of(entries) + 1]
    if store.positions is not None:
        places = store.positions
        there &= places[np.minimum(following, len(places) - 1)] == places[entries] + 1
    there &= present(store, np.where(there, following, 0))
    return np.where(there, following, -1)


def present(store: DatastoreFolder, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether entries are there, same shape: whether their sentences were not deleted."""
    deleted: NDArray[np.bool_] | None = getattr(store, "deleted_entries", None)
    return np.ones(entries.shape, bool) if deleted is None else ~deleted[entries]

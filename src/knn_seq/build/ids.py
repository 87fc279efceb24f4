"""Ids of sentence pairs: given where a corpus has none, and each of them only once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.runtime.wording import count
from knn_seq.storage import PairInfo, Segment
from knn_seq.storage.pairs import PairWriter, hashed

log = logging.getLogger(__name__)

PREFIX_DIGITS = 10
WRITTEN = 1 << 16  # pairs at a time


def id_prefix(identity: dict[str, Any]) -> str:
    """What the ids of a corpus's pairs begin with: the same for the same corpus."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:PREFIX_DIGITS]


def make_ids_unique(segment: Segment, taken: NDArray[np.uint64] | None = None) -> None:
    """Put a number behind each id of a segment that comes twice in it, or that other segments have.

    Args:
        segment: Whose text is written.
        taken: Hashes of ids that others have.
    """
    pairs = segment.pairs
    hashes = pairs.id_hashes
    repeated = np.ones(len(hashes), bool)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    if taken is not None and len(taken):
        repeated |= np.isin(hashes, taken, kind="sort")
    if not repeated.any():
        return
    known = set(hashes.tolist()) | set(() if taken is None else taken.tolist())
    renamed: dict[int, str] = {}
    for number in np.flatnonzero(repeated).tolist():
        version = 2
        while hashed(name := f"{pairs[number].id}.{version}") in known:
            version += 1
        known.add(hashed(name))
        renamed[number] = name
    log.info("%s had an id that another one has: a number was put behind it.", count(len(renamed), "sentence pair"))
    unique = segment.pairs_path.with_name("pairs.unique.h5")
    with PairWriter(unique) as writer:
        for start in range(0, len(pairs), WRITTEN):
            numbers = range(start, min(start + WRITTEN, len(pairs)))
            infos = [PairInfo(renamed.get(number, pairs[number].id), *pairs[number][1:]) for number in numbers]
            writer.extend_pairs(infos, (segment.texts[number][0] for number in numbers))
        writer.finish()
    os.replace(unique, segment.pairs_path)
    segment.close()

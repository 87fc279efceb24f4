"""Sentence pairs of some segments copied into a new one; nothing is computed again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.storage import KeyWriter, Ragged, RaggedWriter, Segment, open_keys
from knn_seq.storage import pairs as pair_file
from knn_seq.storage import text as text_file
from knn_seq.storage.atomic import partial_of, publish
from knn_seq.storage.flat import FlatWriter, create_flat, read_extents

COPIED = 1 << 14  # sentence pairs at a time
VECTORS = "vectors"


class Chosen(NamedTuple):
    """Some sentence pairs of a segment."""

    segment: Segment
    sentences: NDArray[np.int64]  # their numbers in it, ascending

    @property
    def entries(self) -> NDArray[np.int64]:
        """The numbers of their entries in the segment."""
        return self.segment.values.places_of(self.sentences)


def copy_segments(
    parts: Sequence[Chosen],
    new: Segment,
    identity: Mapping[str, Any],
    label: str,
    checkpoint_seconds: float = BuildSettings.checkpoint_seconds,
) -> None:
    """Write a segment of some sentence pairs of others, or resume that; a file that is finished is not written again.

    Args:
        parts: The sentence pairs, in the order that they are to have.
        new: The segment; it is pruned if one of the others is.
        identity: What it is made from.
        label: What the progress bar is called.
        checkpoint_seconds: The most work that a kill may cost.
    """
    new.path.mkdir(parents=True, exist_ok=True)
    tokens: dict[str, DTypeLike] = {"": np.int32}
    _copy_ragged(new.values_path, tokens, parts, lambda segment: segment.values_path)
    _copy_ragged(new.sources_path, tokens, parts, lambda segment: segment.sources_path)
    _copy_ragged(new.text_path, text_file.DTYPES, parts, lambda segment: segment.text_path)
    _copy_ragged(new.pairs_path, pair_file.DTYPES, parts, lambda segment: segment.pairs_path)
    if new.pruned:
        _copy_ragged(new.targets_path, tokens, parts, _targets_path)
        _copy_places(new, parts)
    if all(part.segment.raw_sentences_path.exists() for part in parts):
        rows = [open_keys(part.segment.raw_sentences_path, VECTORS) for part in parts]
        marks = json_identity(parts[0].segment.raw_sentences_path)
        chosen = [part.sentences for part in parts]
        _copy_rows(new.raw_sentences_path, rows, chosen, marks, VECTORS, None, checkpoint_seconds)
    keys = [part.segment.keys for part in parts]
    _copy_rows(new.keys_path, keys, [part.entries for part in parts], identity, "keys", label, checkpoint_seconds)


def json_identity(path: Path) -> dict[str, Any]:
    """What the rows of a file depend on, as it says itself."""
    marks: dict[str, Any] = json.loads(read_extents(path)[1].get("identity", "{}"))
    return marks


def _targets_path(segment: Segment) -> Path:
    return segment.targets_path if segment.pruned else segment.values_path


def _copy_ragged(
    path: Path, dtypes: Mapping[str, DTypeLike], parts: Sequence[Chosen], of: Callable[[Segment], Path]
) -> None:
    if path.exists():
        return
    with RaggedWriter(path, dtypes) as writer:
        for part in parts:
            columns = Ragged.open_all(of(part.segment), tuple(dtypes))
            for start in range(0, len(part.sentences), COPIED):
                rows = part.sentences[start : start + COPIED]
                writer.extend(
                    *(
                        (column.items[column.places_of(rows)], column.offsets[rows + 1] - column.offsets[rows])
                        for column in columns.values()
                    )
                )
        writer.finish()


def _copy_places(new: Segment, parts: Sequence[Chosen]) -> None:
    """Positions of entries, and how many each of them stands for."""
    if new.entries_path.exists():
        return
    positions, counts = [], []
    for part in parts:
        entries, own = part.entries, part.segment.positions
        positions.append(part.segment.values.places_in_rows(entries) if own is None else own[entries])
        of_each = part.segment.counts
        counts.append(np.ones(len(entries), np.int32) if of_each is None else of_each[entries])
    columns = {"positions": np.concatenate(positions)}
    if any(part.segment.counts is not None for part in parts):
        columns["counts"] = np.concatenate(counts)
    partial = partial_of(new.entries_path)
    create_flat(partial, {name: (column.shape, np.int32) for name, column in columns.items()})
    with FlatWriter(partial) as writer:
        for name, column in columns.items():
            writer.write(name, 0, column)
    publish(partial, new.entries_path)


def _copy_rows(
    path: Path,
    parts: Sequence[NDArray[Any]],
    chosen: Sequence[NDArray[np.int64]],
    identity: Mapping[str, Any],
    name: str,
    label: str | None,
    checkpoint_seconds: float,
) -> None:
    shape = (sum(map(len, chosen)), parts[0].shape[1])
    writer, stored = KeyWriter.open_or_create(path, shape, parts[0].dtype, identity, name)
    done = shape[0] if writer.finished else (stored or {"rows": 0})["rows"]
    last, first = time.monotonic(), 0
    with writer, Progress(label or name, shape[0], "key", done) as progress:
        for rows, wanted in zip(parts, chosen, strict=True):
            for start in range(max(done - first, 0), len(wanted), COPIED):
                some = rows[wanted[start : start + COPIED]]
                writer.write(first + start, some)
                progress.update(len(some))
                if time.monotonic() - last >= checkpoint_seconds:
                    writer.checkpoint({"rows": first + start + len(some)})
                    last = time.monotonic()
            first += len(wanted)
        writer.finish()


def live_parts(segments: Sequence[Segment], deleted: NDArray[np.int64], first: int = 0) -> list[Chosen]:
    """The sentence pairs of some consecutive segments that are not deleted.

    Args:
        segments: The segments.
        deleted: The numbers of deleted sentence pairs of the datastore.
        first: The number of the first sentence pair of the first segment.
    """
    parts = []
    for segment in segments:
        live = np.ones(len(segment), bool)
        own = deleted[(deleted >= first) & (deleted < first + len(segment))] - first
        live[own] = False
        parts.append(Chosen(segment, np.flatnonzero(live)))
        first += len(segment)
    return parts

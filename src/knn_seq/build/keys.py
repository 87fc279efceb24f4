"""The second step: the key of every target token."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from knn_seq.build.background import BackgroundWriter, Rows
from knn_seq.build.batches import plan_batches
from knn_seq.build.engine import Engine, Work, Worker
from knn_seq.build.engine.base import LOCK_TIMEOUT
from knn_seq.build.engine.local import LocalEngine
from knn_seq.build.sentences import VECTORS, Vectors, raw_vectors, vectors_identity
from knn_seq.build.shards import Shard, cut_shards
from knn_seq.models import Model, TokenPair
from knn_seq.runtime.progress import Progress
from knn_seq.sentences.encoder import EncoderSearch
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, FolderLock, KeyWriter
from knn_seq.storage.atomic import read_json, write_json
from knn_seq.storage.shard import ShardWriter, restore_borders

FOLDER = "keys.shards"  # what is known of each shard; there only while keys are computed
NOTHING = {"batches": 0, "tokens": 0}


def store_keys(
    folder: DatastoreFolder,
    model: Model,
    settings: BuildSettings,
    identity: dict[str, Any],
    engine: Engine | None = None,
) -> None:
    """Compute the keys shard by shard; shards that are finished are not done again.

    Sentence vectors of the model's own encoder are written along: it reads each sentence only once.

    Args:
        folder: The datastore, which has its text.
        model: Computes the keys.
        settings: How.
        identity: What the keys depend on.
        engine: Who computes; None: this process.
    """
    shards, shape = folder.path / FOLDER, (len(folder.values.items), model.dimension)
    writer, _ = KeyWriter.open_or_create(folder.keys_path, shape, settings.key_dtype, identity, shards=shards)
    with writer:
        if not writer.finished:
            vectors = _begin(folder, model, settings, shards)
            pieces = [
                ShardKeys(folder.path.absolute(), shard, settings, vectors is not None)
                for shard in cut_shards(folder.values, settings.shard_tokens)
            ]
            with Progress("keys", shape[0], "tokens", sum(piece.done() for piece in pieces)) as progress:
                left = [piece for piece in pieces if not piece.finished]
                (engine or LocalEngine(settings, model)).run(left, progress)
            _restore(pieces, writer, vectors)
            if vectors is not None:
                vectors.finish()
        writer.finish()
    shutil.rmtree(shards, ignore_errors=True)


def _begin(folder: DatastoreFolder, model: Model, settings: BuildSettings, shards: Path) -> KeyWriter | None:
    """Keep what was begun in the same way; returns the file of sentence vectors, if all shards write them along."""
    plan = shards / "plan.json"
    there: dict[str, Any] = read_json(plan) if plan.exists() else {}
    wanted: dict[str, Any] = {"batch_tokens": settings.batch_tokens, "shard_tokens": settings.shard_tokens}
    if {name: there.get(name) for name in wanted} != wanted:
        shutil.rmtree(shards, ignore_errors=True)
        there = {}
    vectors, mark = None, None
    if settings.sentence_search == "encoder":
        mark = json.dumps(vectors_identity(folder, settings), sort_keys=True)
        if not there or there["vectors"] == mark:
            vectors = raw_vectors(folder, EncoderSearch("", model), settings, begin=not there)
    wanted["vectors"] = mark if vectors is not None else None  # once a shard is without them, they are made later
    if there != wanted:
        shards.mkdir(parents=True, exist_ok=True)
        write_json(plan, wanted)
    return vectors


def _restore(pieces: Sequence[ShardKeys], writer: KeyWriter, vectors: KeyWriter | None) -> None:
    for piece in pieces:
        restore_borders(piece.kept("keys"), writer)
        if vectors is not None:
            restore_borders(piece.kept(VECTORS), vectors)


@dataclass(frozen=True)
class ShardKeys(Work):
    """The keys of one shard, computed batch by batch, each written while the next is computed.

    Args:
        store: The datastore's folder, as every worker sees it.
        shard: Which sentences.
        settings: How.
        vectors: Whether sentence vectors are written along.
    """

    store: Path
    shard: Shard
    settings: BuildSettings
    vectors: bool

    @property
    def folder(self) -> Path:
        """What is known of the shard."""
        return self.store / FOLDER / f"{self.shard.number:06}"

    def kept(self, name: str) -> Path:
        """The rows at the ends of the shard."""
        return self.folder / f"{name}.ends.h5"

    @property
    def size(self) -> int:
        """Target tokens."""
        return len(self.shard.entries)

    @property
    def finished(self) -> bool:
        """Whether all of its keys are written."""
        return (self.folder / "finished.json").exists()

    def done(self) -> int:
        """See `Work.done`."""
        return self.size if self.finished else self._progress()["tokens"]

    def run(self, worker: Worker) -> None:
        """See `Work.run`."""
        with FolderLock(self.folder, LOCK_TIMEOUT):
            if not self.finished:
                self._compute(worker)
        worker.report(self.size)

    def _compute(self, worker: Worker) -> None:
        folder, start = DatastoreFolder(self.store), self._progress()
        sources, targets = folder.sources, folder.values
        model, dtype = worker.model, getattr(torch, self.settings.key_dtype)
        along = Vectors(folder, EncoderSearch("", model), self.settings) if self.vectors else None
        batches = plan_batches(sources, targets, self.settings.batch_tokens, [self.shard])
        done, begun = start["tokens"], start["batches"] > 0
        with ExitStack() as opened:
            keys_of_shard = ShardWriter(folder.keys_path, self.shard.entries, self.kept("keys"), begun)
            writers = [opened.enter_context(keys_of_shard)]
            if along is not None:
                rows = self.shard.sentences
                vectors_of_shard = ShardWriter(folder.raw_sentences_path, rows, self.kept(VECTORS), begun, VECTORS)
                writers.append(opened.enter_context(vectors_of_shard))

            def checkpoint(progress: Mapping[str, int], name: str = "progress.json") -> None:
                for writer in writers:
                    writer.sync()
                write_json(self.folder / name, progress)

            with BackgroundWriter(writers, start, checkpoint, self.settings.checkpoint_seconds) as background:
                for batch in islice(batches, start["batches"], None):
                    pairs = [TokenPair(sources[i].tolist(), targets[i].tolist()) for i in batch]
                    vectors = [along.rows(batch)] if along else []
                    keys = model.keys(pairs).to(dtype).cpu().numpy()
                    placed: Rows = targets.offsets[batch], [len(pair.target) for pair in pairs], keys
                    background.put(placed, *vectors)
                    done += len(keys)
                    worker.report(done)
            checkpoint(background.progress, "finished.json")

    def _progress(self) -> dict[str, int]:
        path = self.folder / "progress.json"
        return dict(read_json(path)) if path.exists() else NOTHING

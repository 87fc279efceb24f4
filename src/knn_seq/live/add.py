"""Sentence pairs added to a finished datastore, or put in the place of others: a segment, made as a build makes one."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.build.engine import Engine, open_engine
from knn_seq.build.ids import id_prefix, make_ids_unique
from knn_seq.build.keys import store_keys
from knn_seq.build.pipeline import settings_of
from knn_seq.build.sentence_vectors import store_raw_vectors
from knn_seq.build.text import Naming, store_text
from knn_seq.corpus import Corpus
from knn_seq.errors import DamagedFile, UnknownTokens
from knn_seq.live.fold import maintain
from knn_seq.live.lookup import Lookup
from knn_seq.live.on_server import forget_deleted
from knn_seq.live.replaced import Replaced, replaced_by
from knn_seq.live.writing import WAIT_SECONDS, commit, entries_of, writing
from knn_seq.models import Model
from knn_seq.runtime.clock import now
from knn_seq.runtime.wording import count
from knn_seq.sentences import VectorSearch
from knn_seq.sentences.base import sentence_search
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, Segment
from knn_seq.storage.atomic import read_json, unsynced, write_json
from knn_seq.storage.manifest import SegmentInfo
from knn_seq.storage.replacement import SEGMENTS, Replacement, discard_work

log = logging.getLogger(__name__)

STARTED, TEXT_DONE = "started.json", "text.json"
FEW_PAIRS = 256  # that are in memory, and added in a second
MEMORY_FOLDER = "/dev/shm"  # where files cost nothing, if the system has it
IN_MEMORY = "added"  # what the corpus of pairs is called that come from no file


def add_pairs(
    path: Path,
    model: Model,
    corpus: Corpus,
    settings: BuildSettings | None = None,
    update: bool = False,
    wait: float = WAIT_SECONDS,
) -> list[str]:
    """Add sentence pairs to a finished datastore, or resume that; translators that run use them from their next batch.

    Args:
        path: The datastore's folder.
        model: The one that its keys were made with.
        corpus: The sentence pairs.
        settings: The engine, and how bad pairs are treated; the rest is as the datastore was built.
        update: Let each pair take the place of the one with its id or, if there is none, of those with its source.
        wait: Seconds to wait for another writer.

    Returns:
        The ids of the added sentence pairs.
    """
    corpus.bind(model)
    with writing(path, wait) as folder:
        chosen = _settings(folder, model, settings or BuildSettings())
        return _Addition(folder, model, corpus, chosen, update).run()


def _settings(folder: DatastoreFolder, model: Model, given: BuildSettings) -> BuildSettings:
    """As the datastore was built, by the engine that is given now."""
    built = settings_of(folder.manifest)
    subset = folder.manifest.subset
    longest = min(built.max_length, model.max_length or built.max_length)
    return replace(
        given,
        key_dtype=folder.manifest.keys.dtype,
        max_length=longest,
        batch_tokens=built.batch_tokens,
        shard_tokens=built.shard_tokens,
        sentence_search=subset.sentence_search if subset else None,
    )


class _Addition:
    def __init__(
        self, folder: DatastoreFolder, model: Model, corpus: Corpus, settings: BuildSettings, update: bool
    ) -> None:
        self.folder, self.manifest, self.model, self.settings = folder, folder.manifest, model, settings
        identity: dict[str, Any] = {
            "corpus": corpus.identity(),
            "model": model.fingerprint.weights,
            "sentence_search": settings.sentence_search,
            "max_length": settings.max_length,
            "update": self.manifest.generation if update else None,
        }
        self.few = (
            settings.engine == "local" and not corpus.reader.paths and len(list(islice(corpus, FEW_PAIRS))) < FEW_PAIRS
        )
        self.lookup = Lookup(folder)
        self.replaced = replaced_by(corpus, self.lookup) if update else Replaced.nothing()
        self.corpus = self.replaced.renamed(corpus)
        final = f"{SEGMENTS}/{self.manifest.next_segment}"
        self.replacement = Replacement(folder.path, f"{SEGMENTS}/add", identity, None, final)
        self.segment = Segment(self.replacement.new)
        self.identity = identity

    def run(self) -> list[str]:
        with unsynced() if self.few else nullcontext():
            self.replacement.prepare()
        if self.few or not self.replacement.complete:
            with open_engine(self.settings, self.model) as engine:
                if self.few:
                    self._make_in_memory(engine)
                else:
                    self._make(engine, self.replacement.work)
        ids = [info.id for info in self.segment.pairs]
        sentences, tokens = len(self.segment), len(self.segment.keys)
        self.segment.close()
        date = read_json(self.replacement.work / STARTED)["date"]
        self.replacement.publish(resumable=not self.few)
        manifest, gone = self.manifest, self.replaced.numbers
        manifest.segments[str(manifest.next_segment)] = SegmentInfo(sentences, tokens, date)
        manifest.next_segment += 1
        manifest.added += sentences
        manifest.removed += len(gone)
        deleted = np.union1d(self.folder.deleted, gone)
        commit(self.folder, manifest, deleted, entries_of(self.folder, deleted))
        if len(gone):
            forget_deleted(self.folder, gone)
        maintain(self.folder)
        return ids

    def _make_in_memory(self, engine: Engine) -> None:
        """Few pairs are sooner made again, after a kill, than brought to the disk step by step."""
        shutil.rmtree(self.replacement.new, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None) as made:
            self.segment = Segment(Path(made) / "new")
            with unsynced():
                self._make(engine, Path(made))
            shutil.copytree(self.segment.path, self.replacement.new)
        self.segment = Segment(self.replacement.new)

    def _make(self, engine: Engine, work: Path) -> None:
        """Make the segment, or resume that.

        Args:
            engine: Who computes keys.
            work: Where it is told what is done.
        """
        started = self.replacement.work / STARTED
        if not started.exists():
            write_json(started, {"date": now(), "generation": self.manifest.generation})
        if not (work / TEXT_DONE).exists():
            self._text(engine, work)
        self.segment.close()
        make_ids_unique(self.segment, self._taken_ids())
        identity = {"model": self.model.fingerprint.weights, "key": self.manifest.keys.kind}
        store_keys(self.segment, self.model, self.settings, identity, engine)
        if self.settings.sentence_search is not None:
            search = sentence_search(self.settings.sentence_search, self.model)
            if isinstance(search, VectorSearch):
                store_raw_vectors(self.segment, search, self.settings, self.model.fingerprint.weights)

    def _text(self, engine: Engine, work: Path) -> None:
        started = read_json(self.replacement.work / STARTED)
        prefix = id_prefix({**self.identity, "generation": started["generation"]})
        name = self.corpus.describe() if self.corpus.reader.paths else IN_MEMORY
        settings = replace(self.settings, workers=engine.tokenizer_processes)
        try:
            counts = store_text(
                self.segment, self.corpus, self.model.tokenizer, settings, Naming(prefix, name, started["date"])
            )
        except (DamagedFile, UnknownTokens):
            discard_work(self.replacement.work, shutil.rmtree)
            raise
        (self.segment.path / "text.progress.json").unlink(missing_ok=True)
        write_json(work / TEXT_DONE, counts.rejected)
        if counts.rejected:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in counts.rejected.items())
            log.info("Left out: %s (%s).", count(sum(counts.rejected.values()), "sentence pair"), reasons)

    def _taken_ids(self) -> NDArray[np.uint64]:
        """Hashes of ids that stay in use."""
        return self.lookup.live_id_hashes(without=self.replaced.numbers)

"""The first step: the corpus as tokens and text on disk."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from typing import Any

import numpy as np

from knn_seq.build.tokens import TokenChunk, tokenize
from knn_seq.corpus import Corpus
from knn_seq.errors import DamagedFile, UnknownTokens
from knn_seq.models import PairTokenizer
from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.storage import Counts, DatastoreFolder, RaggedWriter, TextWriter
from knn_seq.storage.atomic import PARTIAL, read_json, write_json
from knn_seq.storage.manifest import MANIFEST_NAME

log = logging.getLogger(__name__)

PROGRESS_NAME = "text.progress.json"
TOKENS = {"": np.int32}
MOST_UNKNOWN = 0.05  # of the tokens of a side: text that fits its model has less than half of it


def store_text(folder: DatastoreFolder, corpus: Corpus, tokenizer: PairTokenizer, settings: BuildSettings) -> Counts:
    """Write values, sources and text; resumes from the last checkpoint if there is one."""
    checkpoint_path = folder.path / PROGRESS_NAME
    done: dict[str, Any] = read_json(checkpoint_path) if checkpoint_path.exists() else {}
    rejected = Counter(done.get("rejected", {}))
    unknown = Counter(done.get("unknown", {}))  # tokens of each side
    units: int = done.get("units", 0)  # of the corpus: sentence pairs, good and bad
    writers = {
        "values": RaggedWriter(folder.values_path, TOKENS, done.get("values")),
        "sources": RaggedWriter(folder.sources_path, TOKENS, done.get("sources")),
        "texts": TextWriter(folder.text_path, done.get("texts")),
    }

    def checkpoint(complete: bool = False) -> None:
        lengths = {name: writer.checkpoint() for name, writer in writers.items()}
        counts = {"units": units, "rejected": dict(rejected), "unknown": dict(unknown)}
        write_json(checkpoint_path, {**counts, **lengths, "complete": complete})

    if not done.get("complete"):
        workers = settings.workers or os.cpu_count() or 1
        last = time.monotonic()
        try:
            with Progress("text", None, "pair", done=units) as progress:
                for chunk in tokenize(corpus.pairs(units), tokenizer, settings.max_length, workers):
                    _append(chunk, writers, corpus, settings.strict)
                    rejected.update(bad.reason for bad in chunk.bad)
                    unknown.update(chunk.count_unknown(tokenizer.unknown))
                    units += chunk.units
                    progress.update(chunk.units)
                    if time.monotonic() - last >= settings.checkpoint_seconds:
                        checkpoint()
                        last = time.monotonic()
            if not writers["values"].checkpoint()[""][0]:
                raise DamagedFile(f"There is no usable sentence pair in {corpus.describe()} ({_reasons(rejected)}).")
            tokens_of = {"target": writers["values"], "source": writers["sources"]}
            shares = {side: unknown[side] / writer.checkpoint()[""][1] for side, writer in tokens_of.items()}
            _check_unknown(shares, corpus, tokenizer, settings.allow_unknown)
        except (DamagedFile, UnknownTokens):  # the text, or what splits it, has to be fixed and is another one then
            for writer in writers.values():
                writer.close()
            _discard(folder)
            raise
        checkpoint(complete=True)
    sentences, tokens = writers["values"].checkpoint()[""]
    for writer in writers.values():
        writer.finish()
    return Counts(sentences=sentences, tokens=tokens, rejected=dict(rejected))


def _append(chunk: TokenChunk, writers: dict[str, Any], corpus: Corpus, strict: bool) -> None:
    if strict and chunk.bad:
        bad = chunk.bad[0]
        raise DamagedFile(
            f"{corpus.describe()}, {bad.place}: no usable sentence pair ({bad.reason}); without --strict it is skipped."
        )
    writers["values"].extend(chunk.targets)
    writers["sources"].extend(chunk.sources)
    writers["texts"].extend_texts((pair.source, pair.target) for pair in chunk.pairs)


def _check_unknown(shares: dict[str, float], corpus: Corpus, tokenizer: PairTokenizer, allowed: bool) -> None:
    """Raise an `UnknownTokens` if the keys and values would be those of unknown tokens."""
    for side, share in shares.items():
        if share <= MOST_UNKNOWN:
            continue
        fact = f"{share:.0%} of the {side} tokens of {corpus.describe()} are unknown to the model"
        if not allowed:
            raise UnknownTokens(
                f"{fact}: {corpus.why_unknown() or tokenizer.why_unknown(side)}. "
                "To build the datastore all the same, give --allow-unknown."
            )
        log.warning("%s.", fact)


def _discard(folder: DatastoreFolder) -> None:
    """Leave no datastore behind; if this is killed half-way, the same command again finishes it."""
    (folder.path / PROGRESS_NAME).unlink(missing_ok=True)
    for partial in folder.path.glob(f"*{PARTIAL}"):
        partial.unlink()
    (folder.path / MANIFEST_NAME).unlink(missing_ok=True)


def _reasons(rejected: Counter[str]) -> str:
    return ", ".join(f"{count:,} × {reason}" for reason, count in rejected.items()) or "it is empty"

"""The first step: the corpus as tokens and text on disk."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import numpy as np

from knn_seq.build.tokens import TokenChunk, tokenize
from knn_seq.corpus import Corpus
from knn_seq.errors import KnnSeqError
from knn_seq.models import PairTokenizer
from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.storage import Counts, DatastoreFolder, RaggedWriter, TextWriter
from knn_seq.storage.atomic import read_json, write_json

PROGRESS_NAME = "text.progress.json"
TOKENS = {"": np.int32}


def store_text(folder: DatastoreFolder, corpus: Corpus, tokenizer: PairTokenizer, settings: BuildSettings) -> Counts:
    """Write values, sources and text; goes on from the last checkpoint if there is one."""
    checkpoint_path = folder.path / PROGRESS_NAME
    done: dict[str, Any] = read_json(checkpoint_path) if checkpoint_path.exists() else {}
    rejected = Counter(done.get("rejected", {}))
    lines: int = done.get("lines", 0)
    writers = {
        "values": RaggedWriter(folder.values_path, TOKENS, done.get("values")),
        "sources": RaggedWriter(folder.sources_path, TOKENS, done.get("sources")),
        "texts": TextWriter(folder.text_path, done.get("texts")),
    }

    def checkpoint() -> None:
        lengths = {name: writer.checkpoint() for name, writer in writers.items()}
        write_json(checkpoint_path, {"lines": lines, "rejected": dict(rejected), **lengths})

    if not done.get("complete"):
        workers = settings.workers or os.cpu_count() or 1
        last = time.monotonic()
        with Progress("text", None, "lines", done=lines) as progress:
            for chunk in tokenize(corpus.lines(lines), tokenizer, settings.max_length, workers):
                _append(chunk, writers, corpus, settings.strict)
                rejected.update(bad.reason for bad in chunk.bad)
                lines += chunk.lines
                progress.update(chunk.lines)
                if time.monotonic() - last >= settings.checkpoint_seconds:
                    checkpoint()
                    last = time.monotonic()
        sentences, tokens = writers["values"].checkpoint()[""]
        if not sentences:
            raise KnnSeqError(f"There is no usable sentence pair in {corpus.describe()} ({_reasons(rejected)}).")
        checkpoint()
        write_json(checkpoint_path, read_json(checkpoint_path) | {"complete": True})
    sentences, tokens = writers["values"].checkpoint()[""]
    for writer in writers.values():
        writer.finish()
    return Counts(sentences=sentences, tokens=tokens, rejected=dict(rejected))


def _append(chunk: TokenChunk, writers: dict[str, Any], corpus: Corpus, strict: bool) -> None:
    if strict and chunk.bad:
        bad = chunk.bad[0]
        raise KnnSeqError(
            f"Line {bad.line} of {corpus.describe()} is bad ({bad.reason}); without --strict it is left out."
        )
    writers["values"].extend(chunk.targets)
    writers["sources"].extend(chunk.sources)
    writers["texts"].extend_texts((pair.source, pair.target) for pair in chunk.pairs)


def _reasons(rejected: Counter[str]) -> str:
    return ", ".join(f"{count:,} × {reason}" for reason, count in rejected.items()) or "it is empty"

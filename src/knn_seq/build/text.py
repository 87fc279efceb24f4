"""The first step: the corpus as tokens and text on disk."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from knn_seq.build.tokens import TokenChunk, tokenize
from knn_seq.corpus import Corpus, SentencePair
from knn_seq.errors import DamagedFile, UnknownTokens
from knn_seq.models import PairTokenizer
from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.storage import Counts, PairInfo, RaggedWriter, Segment, TextWriter
from knn_seq.storage.atomic import PARTIAL, read_json, write_json
from knn_seq.storage.pairs import PairWriter

log = logging.getLogger(__name__)

PROGRESS_NAME = "text.progress.json"
TOKENS = {"": np.int32}
MOST_UNKNOWN = 0.05  # of the tokens of a side: text that fits its model has less than half of it


class Naming(NamedTuple):
    """What sentence pairs are called that do not say it themselves."""

    prefix: str  # of ids; a number follows
    corpus: str
    date: str

    def info(self, pair: SentencePair, number: int) -> PairInfo:
        """What is known of the pair that is the `number`-th of its segment, from 0."""
        given = pair.id or f"{self.prefix}-{number + 1}"
        return PairInfo(given, pair.corpus or self.corpus, pair.date or self.date)


def store_text(
    segment: Segment, corpus: Corpus, tokenizer: PairTokenizer, settings: BuildSettings, naming: Naming
) -> Counts:
    """Write values, sources, text and ids of sentence pairs; resumes from the last checkpoint if there is one.

    Args:
        segment: Where to.
        corpus: The sentence pairs.
        tokenizer: The model's.
        settings: How.
        naming: The ids, corpus and date of pairs that have none.
    """
    segment.path.mkdir(parents=True, exist_ok=True)
    checkpoint_path = segment.path / PROGRESS_NAME
    done: dict[str, Any] = read_json(checkpoint_path) if checkpoint_path.exists() else {}
    rejected = Counter(done.get("rejected", {}))
    unknown = Counter(done.get("unknown", {}))  # tokens of each side
    units: int = done.get("units", 0)  # of the corpus: sentence pairs, good and bad
    pair_writer = PairWriter(segment.pairs_path, done.get("pairs"))
    writers = {
        "values": RaggedWriter(segment.values_path, TOKENS, done.get("values")),
        "sources": RaggedWriter(segment.sources_path, TOKENS, done.get("sources")),
        "texts": TextWriter(segment.text_path, done.get("texts")),
        "pairs": pair_writer,
    }
    stored: int = done["values"][""][0] if done else 0

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
                    infos = [naming.info(pair, stored + place) for place, pair in enumerate(chunk.pairs)]
                    pair_writer.extend_pairs(infos, (pair.source for pair in chunk.pairs))
                    stored += len(infos)
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
            _discard(segment)
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


def _discard(segment: Segment) -> None:
    """Leave nothing behind; if this is killed half-way, the same command again finishes it."""
    (segment.path / PROGRESS_NAME).unlink(missing_ok=True)
    for partial in segment.path.glob(f"*{PARTIAL}"):
        partial.unlink()
    segment.path.rmdir()


def _reasons(rejected: Counter[str]) -> str:
    return ", ".join(f"{count:,} × {reason}" for reason, count in rejected.items()) or "it is empty"

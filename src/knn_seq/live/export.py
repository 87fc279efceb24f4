"""Sentence pairs written as text, with their ids, corpora and dates."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from typing import TextIO

from knn_seq.corpus import SentencePair
from knn_seq.errors import MissingLibrary

COLUMNS = ("source", "target", "id", "corpus", "date")


def export_pairs(
    format: str,
    pairs: Iterable[SentencePair],
    stream: TextIO,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> None:
    """Write sentence pairs, one after the other.

    Args:
        format: "tsv", "jsonl", or one that `knn_seq.corpus.writers` knows.
        pairs: The sentence pairs.
        stream: Where to.
        source_lang: Of the sources, if it is known.
        target_lang: Of the targets.
    """
    if format not in ("tsv", "jsonl"):
        try:
            writers = import_module("knn_seq.corpus.writers")
        except ImportError as error:
            raise MissingLibrary(f"There is no writer of the format '{format}': choose tsv or jsonl.") from error
        writers.write_pairs(format, pairs, stream, source_lang=source_lang, target_lang=target_lang)
        return
    for pair in pairs:
        values = [getattr(pair, name) or "" for name in COLUMNS]
        if format == "tsv":
            stream.write("\t".join(" ".join(value.split()) for value in values) + "\n")
        else:
            stream.write(json.dumps(dict(zip(COLUMNS, values, strict=True)), ensure_ascii=False) + "\n")

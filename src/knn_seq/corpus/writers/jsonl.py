from __future__ import annotations

import json
from collections.abc import Iterable
from typing import BinaryIO

from knn_seq.corpus.pair import SentencePair
from knn_seq.corpus.writers.base import PAIR_WRITERS, PairWriter


@PAIR_WRITERS.register("jsonl")
class JsonLinesWriter(PairWriter):
    """A JSON object on each line: source, target and, where they are known, id, corpus and date."""

    def write(
        self, pairs: Iterable[SentencePair], stream: BinaryIO, source_lang: str | None, target_lang: str | None
    ) -> None:
        """Write any text as it is."""
        for pair in pairs:
            known = {name: value for name in ("id", "corpus", "date") if (value := getattr(pair, name)) is not None}
            record = {"source": pair.source, "target": pair.target, **known}
            stream.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")

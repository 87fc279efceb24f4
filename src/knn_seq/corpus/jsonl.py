from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.pair import MISSING_COLUMN, NOT_JSON, NOT_UTF8
from knn_seq.errors import KnnSeqError


@CORPUS_FORMATS.register("jsonl")
class JsonLinesReader(CorpusReader):
    """A JSON object on each line; the columns are keys, or dotted paths of keys such as "translation.pt"."""

    suffixes = (".jsonl", ".ndjson", ".json")
    default_columns = ("source", "target")

    def __init__(self, columns: Sequence[int | str] | None = None) -> None:
        super().__init__(columns)
        if not all(isinstance(column, str) and column for column in self.columns):
            raise KnnSeqError(
                "The columns of a JSON lines file are keys such as source and target, "
                f"not {self.columns[0]} and {self.columns[1]}."
            )
        self._source, self._target = map(str, self.columns)

    def parse(self, lines: Sequence[str]) -> tuple[str, str] | str:
        """Look both keys up."""
        try:
            record = json.loads(lines[0])
        except (ValueError, RecursionError):
            return NOT_JSON
        source, target = _look_up(record, self._source), _look_up(record, self._target)
        if not isinstance(source, str) or not isinstance(target, str):
            return MISSING_COLUMN
        try:  # "\ud800" is good JSON, but half a character
            source.encode()
            target.encode()
        except UnicodeEncodeError:
            return NOT_UTF8
        return source, target


def _look_up(record: Any, path: str) -> Any:
    if not isinstance(record, dict):
        return None
    if path in record:
        return record[path]
    head, dot, rest = path.partition(".")
    return _look_up(record.get(head), rest) if dot else None

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from knn_seq.corpus.base import CORPUS_FORMATS
from knn_seq.corpus.lines import LineReader
from knn_seq.corpus.pair import MISSING_COLUMN, NOT_JSON
from knn_seq.errors import InvalidSetting


@CORPUS_FORMATS.register("jsonl")
class JsonLinesReader(LineReader):
    """A JSON object on each line; the columns are keys, or dotted paths of keys such as "translation.pt"."""

    suffixes = (".jsonl", ".ndjson", ".json")
    default_columns = ("source", "target")

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Sequence[int | str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(paths, columns, options)
        if not all(isinstance(column, str) and column for column in self.columns):
            raise InvalidSetting(
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
        return (source, target) if isinstance(source, str) and isinstance(target, str) else MISSING_COLUMN


def _look_up(record: Any, path: str) -> Any:
    if not isinstance(record, dict):
        return None
    if path in record:
        return record[path]
    head, dot, rest = path.partition(".")
    return _look_up(record.get(head), rest) if dot else None

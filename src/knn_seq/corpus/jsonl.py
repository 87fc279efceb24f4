from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from knn_seq.corpus.base import CORPUS_FORMATS
from knn_seq.corpus.lines import LineReader
from knn_seq.corpus.pair import MISSING_COLUMN, NOT_JSON
from knn_seq.errors import InvalidSetting

ORIGIN_KEYS = ("id", "corpus", "date")


@CORPUS_FORMATS.register("jsonl")
class JsonLinesReader(LineReader):
    """A JSON object on each line; the columns are keys, or dotted paths of keys such as "translation.pt".

    Id, corpus and date are read where they are there, under the keys of these names or those given behind the first
    two; a number is an id as well.
    """

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
            given = " and ".join(map(str, self.columns))
            raise InvalidSetting(f"The columns of a JSON lines file are keys such as source and target, not {given}.")
        self._source, self._target, *origin = map(str, self.columns)
        self._origin = (*origin, *ORIGIN_KEYS[len(origin) :])

    def parse(self, lines: Sequence[str]) -> Sequence[str | None] | str:
        """Look the keys up."""
        try:
            record = json.loads(lines[0])
        except (ValueError, RecursionError):
            return NOT_JSON
        source, target = _look_up(record, self._source), _look_up(record, self._target)
        if not isinstance(source, str) or not isinstance(target, str):
            return MISSING_COLUMN
        return source, target, *(_as_text(_look_up(record, key)) for key in self._origin)


def _as_text(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else None


def _look_up(record: Any, path: str) -> Any:
    if not isinstance(record, dict):
        return None
    if path in record:
        return record[path]
    head, dot, rest = path.partition(".")
    return _look_up(record.get(head), rest) if dot else None

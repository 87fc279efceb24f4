from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from knn_seq.corpus.base import CORPUS_FORMATS
from knn_seq.corpus.lines import LineReader
from knn_seq.corpus.pair import MISSING_COLUMN
from knn_seq.errors import InvalidSetting


@CORPUS_FORMATS.register("tsv")
class TsvReader(LineReader):
    """Columns separated by tabs and no quoting rules; source and target in columns 1 and 2."""

    suffixes = (".tsv", ".tab")
    default_columns = (1, 2)

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Sequence[int | str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(paths, columns, options)
        if not all(str(column).isdecimal() and int(column) >= 1 for column in self.columns):
            raise InvalidSetting(
                f"The columns of a TSV file are numbers from 1 on, not {self.columns[0]}, {self.columns[1]}."
            )
        source, target = map(int, self.columns)
        self.columns = (source, target)
        self._source, self._target, self._needed = source - 1, target - 1, max(source, target)

    def parse(self, lines: Sequence[str]) -> tuple[str, str] | str:
        """Split at every tab."""
        cells = lines[0].split("\t")
        if len(cells) < self._needed:
            return MISSING_COLUMN
        return cells[self._source], cells[self._target]

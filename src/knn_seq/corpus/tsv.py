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
    """Columns separated by tabs and no quoting rules; source and target in columns 1 and 2.

    Id, corpus and date are read if their columns are given behind those two; they may be empty, or missing in a line.
    """

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
            given = ", ".join(map(str, self.columns))
            raise InvalidSetting(f"The columns of a TSV file are numbers from 1 on, not {given}.")
        self.columns = tuple(map(int, self.columns))
        self._cells = [int(column) - 1 for column in self.columns]
        self._needed = max(self._cells[:2]) + 1

    def parse(self, lines: Sequence[str]) -> Sequence[str | None] | str:
        """Split at every tab."""
        cells = lines[0].split("\t")
        if len(cells) < self._needed:
            return MISSING_COLUMN
        return [cells[cell].strip() if cell < len(cells) else None for cell in self._cells]

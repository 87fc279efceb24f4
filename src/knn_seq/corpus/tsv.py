from __future__ import annotations

from collections.abc import Sequence

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.pair import MISSING_COLUMN
from knn_seq.errors import KnnSeqError


@CORPUS_FORMATS.register("tsv")
class TsvReader(CorpusReader):
    """Columns parted by tabs and no quoting rules; source and target in columns 1 and 2."""

    suffixes = (".tsv", ".tab")
    default_columns = (1, 2)

    def __init__(self, columns: Sequence[int | str] | None = None) -> None:
        super().__init__(columns)
        if not all(str(column).isdecimal() and int(column) >= 1 for column in self.columns):
            raise KnnSeqError(
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

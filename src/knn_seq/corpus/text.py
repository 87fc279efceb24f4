from __future__ import annotations

from collections.abc import Sequence

from knn_seq.corpus.base import CORPUS_FORMATS
from knn_seq.corpus.lines import LineReader


@CORPUS_FORMATS.register("text")
class TextReader(LineReader):
    """Two text files: a line of the one is the translation of the same line of the other."""

    files = 2

    def parse(self, lines: Sequence[str]) -> tuple[str, str] | str:
        """The line of each file."""
        return lines[0], lines[1]

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from knn_seq.corpus.pair import SentencePair
from knn_seq.corpus.writers.base import PAIR_WRITERS, PairWriter

_SEPARATORS = re.compile(r"[\t\r\n]+")


@PAIR_WRITERS.register("tsv")
class TsvWriter(PairWriter):
    """Columns separated by tabs: source, target, id, corpus, date; what is not known is empty.

    The format has no quoting: tabs and line ends inside of a text become a space.
    """

    def write(
        self, pairs: Iterable[SentencePair], stream: BinaryIO, source_lang: str | None, target_lang: str | None
    ) -> None:
        """Write a line for each pair."""
        for pair in pairs:
            cells = (pair.source, pair.target, pair.id or "", pair.corpus or "", pair.date or "")
            line = "\t".join(_SEPARATORS.sub(" ", cell) for cell in cells)
            stream.write(line.encode("utf-8", "replace") + b"\n")

"""What the formats with a sentence pair a line have in common."""

from __future__ import annotations

import codecs
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path

from knn_seq.corpus.base import CorpusReader
from knn_seq.corpus.files import reading
from knn_seq.corpus.pair import EMPTY_SIDE, NOT_UTF8, TOO_LONG, BadPair, SentencePair, make_pair
from knn_seq.errors import DamagedFile

MAX_LINE_BYTES = 1 << 20
END = b"\n"  # stands for the lines of a file that has ended: no line holds its own end


class LineReader(CorpusReader):
    """A format whose sentence pairs stand in one line each: of one file, or the same line of several."""

    @abstractmethod
    def parse(self, lines: Sequence[str]) -> Sequence[str | None] | str:
        """Source and target of a line, with its id, corpus and date behind if it has them; or the reason why not.

        Args:
            lines: The same line of each file, without its end.
        """

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Every line but for the first `start`."""
        rows = zip_longest(*map(read_lines, self.paths), fillvalue=END)
        for number, row in enumerate(islice(rows, start, None), start + 1):
            if END in row:
                raise DamagedFile(
                    f"{' and '.join(map(str, self.paths))} do not have the same number of lines: "
                    f"one ends before line {number}."
                )
            yield self._pair(f"line {number}", row)

    def _pair(self, place: str, row: Sequence[bytes | None]) -> SentencePair | BadPair:
        if None in row:
            return BadPair(place, TOO_LONG)
        try:
            texts = [line.decode() for line in row if line is not None]
        except UnicodeDecodeError:
            return BadPair(place, NOT_UTF8)
        parsed = self.parse(texts)
        if isinstance(parsed, str):
            return BadPair(place, parsed if any(map(str.strip, texts)) else EMPTY_SIDE)
        source, target, *origin = parsed
        return make_pair(source or "", target or "", place, *origin)


def read_lines(path: Path) -> Iterator[bytes | None]:
    """Each line without its end, and without the byte-order mark of the file.

    None stands for a line of more than a MiB, which is dropped: a file without line ends must not fill the memory.
    """
    with reading(path) as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            file.seek(0)
        while line := file.readline(MAX_LINE_BYTES):
            if line.endswith(b"\n"):
                yield line[:-2] if line.endswith(b"\r\n") else line[:-1]
            elif len(line) < MAX_LINE_BYTES:
                yield line.removesuffix(b"\r")
            else:
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES)
                yield None

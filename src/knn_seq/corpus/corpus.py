from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.lines import read_lines
from knn_seq.corpus.pair import EMPTY_SIDE, NOT_UTF8, TOO_LONG, BadLine, SentencePair
from knn_seq.errors import KnnSeqError

HASHED_BYTES = 1 << 20
END = b"\n"  # stands for the lines of a file that has ended: no line holds its own end


class Corpus:
    """Parallel text in files, read line by line.

    Args:
        format: The format's name.
        reader: The format.
        paths: Its files: one, or one for each side.
    """

    def __init__(self, format: str, reader: CorpusReader, paths: Sequence[Path]) -> None:
        self.format, self.reader, self.paths = format, reader, tuple(paths)
        for path in self.paths:
            _require_readable(path)

    def lines(self, skip: int = 0) -> Iterator[SentencePair | BadLine]:
        """Every line from number `skip` + 1 on, as a sentence pair or as the reason why it is none."""
        rows = zip_longest(*map(read_lines, self.paths), fillvalue=END)
        for number, row in enumerate(islice(rows, skip, None), skip + 1):
            if END in row:
                raise KnnSeqError(
                    f"{' and '.join(map(str, self.paths))} do not have the same number of lines: "
                    f"one ends before line {number}."
                )
            yield self._line(number, row)

    def __iter__(self) -> Iterator[SentencePair | BadLine]:
        return self.lines()

    def identity(self) -> dict[str, Any]:
        """What tells whether this is the same corpus as another time: names, sizes, hash of both ends."""
        return {
            "format": self.format,
            "columns": list(self.reader.columns),
            "files": [_file_identity(path) for path in self.paths],
        }

    def describe(self) -> str:
        """The corpus in a few words."""
        columns = self.reader.columns
        where = f" ({columns[0]}, {columns[1]})" if columns != self.reader.default_columns else ""
        return " and ".join(path.name for path in self.paths) + where

    def _line(self, number: int, row: Sequence[bytes | None]) -> SentencePair | BadLine:
        if None in row:
            return BadLine(number, TOO_LONG)
        try:
            texts = [line.decode() for line in row if line is not None]
        except UnicodeDecodeError:
            return BadLine(number, NOT_UTF8)
        parsed = self.reader.parse(texts)
        if isinstance(parsed, str):
            return BadLine(number, parsed if any(map(str.strip, texts)) else EMPTY_SIDE)
        source, target = parsed[0].strip(), parsed[1].strip()
        return SentencePair(source, target, number) if source and target else BadLine(number, EMPTY_SIDE)


def open_corpus(
    corpus: str | Path | None = None,
    source: str | Path | None = None,
    target: str | Path | None = None,
    columns: Sequence[int | str] | None = None,
    format: str | None = None,
) -> Corpus:
    """A corpus from its files: one with both sides, or one for each side.

    Args:
        corpus: A file with both sides.
        source: A text file with the sources, together with `target`.
        target: A text file with the targets, together with `source`.
        columns: Where source and target are in `corpus`: column numbers of a TSV file, keys of JSON lines.
        format: The format's name; None: told by the file's name.
    """
    if corpus is not None and source is None and target is None:
        paths = [Path(corpus)]
        format = format or _format_of(paths[0])
    elif corpus is None and source is not None and target is not None:
        paths = [Path(source), Path(target)]
        format = format or "text"
    else:
        raise KnnSeqError("Give the corpus either as one file with both sides, or as a source file and a target file.")
    kind = CORPUS_FORMATS.get(format)
    if kind.files != len(paths):
        wanted = "one file with both sides" if kind.files == 1 else "a source file and a target file"
        raise KnnSeqError(f"The corpus format '{format}' takes {wanted}.")
    return Corpus(format, kind(columns), paths)


def _format_of(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    for format in CORPUS_FORMATS.names():
        if name.endswith(CORPUS_FORMATS.get(format).suffixes):
            return format
    raise KnnSeqError(f"The name of {path} does not tell its format: give one of {', '.join(CORPUS_FORMATS.names())}.")


def _require_readable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # a pipe can be read only once, and an interrupted build has to read again
            raise KnnSeqError(
                f"{path} is a {'folder' if stat.S_ISDIR(mode) else 'pipe or device'}: give a regular file."
            )
        open(path, "rb").close()
    except FileNotFoundError as error:
        raise KnnSeqError(f"There is no file {path}.") from error
    except OSError as error:
        raise KnnSeqError(f"{path} cannot be read: {error.strerror}.") from error


def _file_identity(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(file.read(HASHED_BYTES))
        file.seek(max(0, size - HASHED_BYTES))
        digest.update(file.read(HASHED_BYTES))
    return {"name": path.name, "bytes": size, "ends": digest.hexdigest()}

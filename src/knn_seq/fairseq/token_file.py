"""One side of a corpus as `fairseq-preprocess` writes it: the tokens of all sentences, and where each begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import DamagedFile, KnnSeqError

MAPPED = b"MMIDIDX\x00\x00"  # --dataset-impl mmap
CACHED = b"TNTIDX\x00\x00"  # --dataset-impl cached and lazy
INTEGERS = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}


class TokenFile(NamedTuple):
    """One side of a split: a `.bin` file with the tokens of all sentences, and where each of them begins."""

    path: Path
    tokens: NDArray[Any]
    starts: NDArray[np.int64]  # (sentences,)
    lengths: NDArray[np.int64]  # (sentences,)
    shift: int  # what has to be taken off a stored number

    @classmethod
    def open(cls, prefix: Path) -> TokenFile:
        """Read `prefix`.idx and map `prefix`.bin into memory."""
        index, path = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
        try:
            data = index.read_bytes()
            kind, starts, lengths, shift = _index(data, index)
            tokens: NDArray[Any] = (
                np.memmap(path, dtype=kind, mode="r") if path.stat().st_size else np.empty(0, dtype=kind)
            )
        except DamagedFile:  # which is a ValueError, too
            raise
        except (ValueError, IndexError) as error:
            raise DamagedFile(f"{index} is cut short or damaged: run fairseq-preprocess again.") from error
        except OSError as error:
            raise KnnSeqError(f"{error.filename} cannot be read: {error.strerror}.") from error
        if len(starts) and (min(starts.min(), lengths.min()) < 0 or (starts + lengths).max() > len(tokens)):
            raise DamagedFile(
                f"{path} ends before the sentences that {index.name} tells of: run fairseq-preprocess again."
            )
        return cls(path, tokens, starts, lengths, shift)

    def sentence(self, number: int) -> tuple[int, ...]:
        """The tokens of a sentence."""
        start = self.starts[number]
        numbers = self.tokens[start : start + self.lengths[number]].astype(np.int64) - self.shift
        return tuple(numbers.tolist())


def _index(data: bytes, path: Path) -> tuple[str, NDArray[np.int64], NDArray[np.int64], int]:
    """The kind of numbers, where each sentence begins (counted in numbers), how long it is, and the shift."""
    if data.startswith(MAPPED):
        place = len(MAPPED)
        version, code = _numbers(data, place, "<u8", 1)[0], data[place + 8]
        kind = _kind(path, int(version), int(code))
        count = int(_numbers(data, place + 9, "<u8", 1)[0])
        lengths = _numbers(data, place + 17, "<i4", count).astype(np.int64)
        pointers = _numbers(data, place + 17 + 4 * count, "<i8", count)
        return kind, pointers // np.dtype(kind).itemsize, lengths, 0
    if data.startswith(CACHED):
        version, code, _, count, sizes = map(int, _numbers(data, len(CACHED), "<u8", 5))
        kind, place = _kind(path, version, code), len(CACHED) + 40 + 8 * (count + 1)
        if sizes != count:
            raise ValueError
        starts = _numbers(data, place, "<i8", count + 1)
        lengths = _numbers(data, place + 8 * (count + 1), "<i8", count)
        return kind, starts[:-1], lengths, 1  # this format counts tokens from 1
    raise DamagedFile(f"{path} is in a format that is not supported: run fairseq-preprocess with --dataset-impl mmap.")


def _numbers(data: bytes, place: int, kind: str, count: int) -> NDArray[np.int64]:
    return np.frombuffer(data, dtype=kind, count=count, offset=place)


def _kind(path: Path, version: int, code: int) -> str:
    if version != 1 or code not in INTEGERS:
        raise DamagedFile(
            f"{path} has version {version} and numbers of kind {code}: only version 1 with integers is known."
        )
    return INTEGERS[code]

"""What `fairseq-preprocess` made of a parallel corpus (a "data-bin" folder) as a corpus."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.corpus.corpus import Corpus, _file_identity
from knn_seq.corpus.pair import EMPTY_SIDE, BadLine, SentencePair
from knn_seq.errors import KnnSeqError
from knn_seq.fairseq.dictionary import EOS, Dictionary, join_pieces

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
        except (ValueError, IndexError) as error:
            raise KnnSeqError(f"{index} is cut short or damaged: run fairseq-preprocess again.") from error
        except OSError as error:
            raise KnnSeqError(f"{error.filename} cannot be read: {error.strerror}.") from error
        if len(starts) and (min(starts.min(), lengths.min()) < 0 or (starts + lengths).max() > len(tokens)):
            raise KnnSeqError(
                f"{path} ends before the sentences that {index.name} tells of: run fairseq-preprocess again."
            )
        return cls(path, tokens, starts, lengths, shift)

    def sentence(self, number: int) -> tuple[int, ...]:
        """The tokens of a sentence."""
        start = self.starts[number]
        numbers = self.tokens[start : start + self.lengths[number]].astype(np.int64) - self.shift
        return tuple(numbers.tolist())


class DataBin(Corpus):
    """A split of a data-bin folder; the pairs come with their tokens.

    Args:
        folder: What `fairseq-preprocess --destdir` was given.
        subset: The split, "train"; "train1", "train2" ... are read behind it if they are there.
        source_lang: The language to translate from; None: the first of the pair in the files' names.
        target_lang: The language to translate to; None: the second one.
        source_prefix: Tokens to put before every source, such as a multilingual model's language token.
    """

    def __init__(
        self,
        folder: str | Path,
        subset: str = "train",
        source_lang: str | None = None,
        target_lang: str | None = None,
        source_prefix: Sequence[int] = (),
    ) -> None:
        self.folder, self.subset, self.source_prefix = Path(folder), subset, tuple(source_prefix)
        if not self.folder.is_dir():
            raise KnnSeqError(f"There is no folder {folder}: give what fairseq-preprocess wrote with --destdir.")
        first, second = source_lang, target_lang
        if first is None or second is None:
            first, second = self._language_pair()
        self.source_lang, self.target_lang = source_lang or first, target_lang or second
        self.source_dictionary = Dictionary.read(self.folder / f"dict.{self.source_lang}.txt")
        self.target_dictionary = Dictionary.read(self.folder / f"dict.{self.target_lang}.txt")
        self._parts = list(self._open_parts())
        self._ends = np.cumsum([len(source.starts) for source, _ in self._parts]).tolist()
        self._word_starts = self.source_dictionary.has_word_starts(), self.target_dictionary.has_word_starts()
        self.paths = tuple(file.path for part in self._parts for file in part)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def lines(self, skip: int = 0) -> Iterator[SentencePair | BadLine]:
        """Every sentence pair from number `skip` + 1 on."""
        for number in range(skip, len(self)):
            part = bisect_right(self._ends, number)
            place = number - (self._ends[part - 1] if part else 0)
            source, target = (file.sentence(place) for file in self._parts[part])
            yield self._pair(number + 1, source, target)

    def identity(self) -> dict[str, Any]:
        """What tells whether this is the same corpus as another time."""
        languages = [self.source_lang, self.target_lang]
        return {"format": "fairseq", "columns": languages, "files": [_file_identity(path) for path in self.paths]}

    def describe(self) -> str:
        """The corpus in a few words."""
        return f"{self.subset} of {self.folder.name} ({self.source_lang}-{self.target_lang})"

    def _pair(self, line: int, source: tuple[int, ...], target: tuple[int, ...]) -> SentencePair | BadLine:
        for tokens, dictionary in ((source, self.source_dictionary), (target, self.target_dictionary)):
            if tokens and not (min(tokens) >= 0 and max(tokens) < len(dictionary)):
                raise KnnSeqError(
                    f"Sentence {line} of {self.describe()} has tokens that its dictionary does not: "
                    "the files do not belong together."
                )
        source, target = ((*tokens, EOS) if tokens[-1:] != (EOS,) else tokens for tokens in (source, target))
        if len(source) == 1 or len(target) == 1:
            return BadLine(line, EMPTY_SIDE)
        texts = [
            join_pieces(dictionary.decode(tokens), word_starts)
            for tokens, dictionary, word_starts in zip(
                (source, target), (self.source_dictionary, self.target_dictionary), self._word_starts, strict=True
            )
        ]
        return SentencePair(texts[0], texts[1], line, (*self.source_prefix, *source), target)

    def _language_pair(self) -> tuple[str, str]:
        names = (re.fullmatch(r"[^.]+\.([^.-]+)-([^.-]+)\.[^.]+\.idx", path.name) for path in self.folder.iterdir())
        pairs = sorted({(match[1], match[2]) for match in names if match})
        if len(pairs) != 1:
            found = " and ".join("-".join(pair) for pair in pairs) or "none"
            raise KnnSeqError(
                f"The languages of {self.folder} cannot be told from its files ({found} found): "
                "give --source-lang and --target-lang."
            )
        return pairs[0]

    def _open_parts(self) -> Iterator[tuple[TokenFile, TokenFile]]:
        split, number = self.subset, 0
        while (prefix := self._prefix(split)) is not None:
            part = (
                TokenFile.open(Path(f"{prefix}.{self.source_lang}")),
                TokenFile.open(Path(f"{prefix}.{self.target_lang}")),
            )
            if len(part[0].starts) != len(part[1].starts):
                raise KnnSeqError(f"{part[0].path} and {part[1].path.name} do not have the same number of sentences.")
            yield part
            number += 1
            split = f"{self.subset}{number}"
        if not number:
            raise KnnSeqError(
                f"There is no split '{self.subset}' from {self.source_lang} to {self.target_lang} in {self.folder}: "
                "give another --subset, or run fairseq-preprocess with another --dataset-impl than raw."
            )

    def _prefix(self, split: str) -> Path | None:
        """The beginning of a split's file names; fairseq uses the same files for both directions."""
        for pair in (f"{self.source_lang}-{self.target_lang}", f"{self.target_lang}-{self.source_lang}"):
            if (self.folder / f"{split}.{pair}.{self.source_lang}.idx").exists():
                return self.folder / f"{split}.{pair}"
        return None


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
    raise KnnSeqError(f"{path} is in a format that is not supported: run fairseq-preprocess with --dataset-impl mmap.")


def _numbers(data: bytes, place: int, kind: str, count: int) -> NDArray[np.int64]:
    return np.frombuffer(data, dtype=kind, count=count, offset=place)


def _kind(path: Path, version: int, code: int) -> str:
    if version != 1 or code not in INTEGERS:
        raise KnnSeqError(
            f"{path} has version {version} and numbers of kind {code}: only version 1 with integers is known."
        )
    return INTEGERS[code]

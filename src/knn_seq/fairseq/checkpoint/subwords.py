"""Words to pieces and back, as the checkpoint's own BPE or SentencePiece has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import sentencepiece

from knn_seq.errors import DamagedFile
from knn_seq.fairseq.checkpoint.options import OPTIONS_NAME
from knn_seq.fairseq.dictionary import CONTINUED, join_pieces

WORD_END = "</w>"
REMEMBERED_WORDS = 100_000


class Subwords(ABC):
    """Text to pieces and back."""

    path: Path | None = None  # the file that tells how

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """The pieces of a text."""

    @abstractmethod
    def join(self, pieces: Sequence[str]) -> str:
        """The text of pieces."""

    def why_unknown(self) -> str:
        """Why much of a text may be unknown and what to do, for a message."""
        return (
            f"check that {self.path} belongs to the model, and that the text is in its language and tokenized as its "
            f'training text was ("tokenizer": "moses" in {OPTIONS_NAME} does it as Moses does)'
        )


class Pretokenized(Subwords):
    """The text holds the pieces, parted by spaces; "@@" marks those that another one continues.

    Args:
        names: The file names under which subword codes were looked for ...
        folders: ... in these folders.
    """

    def __init__(self, names: Sequence[str] = (), folders: Sequence[Path] = ()) -> None:
        self.names, self.folders = tuple(names), tuple(folders)

    def split(self, text: str) -> list[str]:
        """What is between the spaces."""
        return text.split()

    def join(self, pieces: Sequence[str]) -> str:
        """The words."""
        return join_pieces(pieces, word_starts=False)

    def why_unknown(self) -> str:
        """Where codes were looked for."""
        return (
            f"no subword codes were found in {' or '.join(map(str, self.folders))} (looked for "
            f"{', '.join(self.names)}), so the text was taken as tokens with spaces between them; put the model's "
            f"codes there under one of these names, name them in {OPTIONS_NAME}, or give text that is split already"
        )


class BytePairs(Subwords):
    """Byte-pair encoding with the codes of subword-nmt or fastBPE.

    Args:
        path: A merge on each line, the most frequent first; fastBPE writes its count behind it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.merges: list[tuple[str, str]] = []
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DamagedFile(f"The BPE codes {path} cannot be read: {error}.") from error
        header = lines[0].startswith("#version:")
        counted = False
        for number, line in enumerate(lines[1:] if header else lines, 2 if header else 1):
            fields = line.rstrip("\r ").split(" ")
            if fields == [""]:
                continue
            if len(fields) not in (2, 3):
                raise DamagedFile(f"Line {number} of the BPE codes {path} is not two pieces to merge: '{line}'.")
            counted |= len(fields) == 3
            self.merges.append((fields[0], fields[1]))
        # Without a header these are subword-nmt's first version, which ends words with a symbol of its own.
        self.separate_end = not counted and (not header or lines[0].split(":")[1].strip() == "0.1")
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, merge in enumerate(self.merges):
            self._ranks.setdefault(merge, rank)
        self._known: dict[str, list[str]] = {}

    def split(self, text: str) -> list[str]:
        """The pieces of all words; all but the last of a word end in "@@"."""
        return [piece for word in text.split() for piece in self._split_word(word)]

    def join(self, pieces: Sequence[str]) -> str:
        """The words."""
        return join_pieces(pieces, word_starts=False)

    def _split_word(self, word: str) -> list[str]:
        if word not in self._known:
            if len(self._known) >= REMEMBERED_WORDS:
                self._known.clear()
            self._known[word] = [word] if len(word) == 1 else self._merge(word)
        return self._known[word]

    def _merge(self, word: str) -> list[str]:
        pieces = [*word, WORD_END] if self.separate_end else [*word[:-1], word[-1] + WORD_END]
        while len(pieces) > 1:
            pairs = set(pairwise(pieces)) & self._ranks.keys()
            if not pairs:
                break
            pieces = _merge_all(pieces, min(pairs, key=self._ranks.__getitem__))
        pieces[-1] = pieces[-1].removesuffix(WORD_END)
        if not pieces[-1]:
            pieces.pop()
        return [*(piece + CONTINUED for piece in pieces[:-1]), pieces[-1]]

    def __reduce__(self) -> tuple[type[BytePairs], tuple[Path]]:
        assert self.path is not None
        return BytePairs, (self.path,)


class SentencePieces(Subwords):
    """A SentencePiece model.

    Args:
        path: The model; a pickled one reads it again from there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise DamagedFile(f"Cannot read {path} as a SentencePiece model: get the file again.") from error

    def split(self, text: str) -> list[str]:
        """The pieces; "▁" marks the start of a word."""
        pieces: list[str] = self._processor.encode(text, out_type=str, num_threads=1)
        return pieces

    def join(self, pieces: Sequence[str]) -> str:
        """The text."""
        return join_pieces(pieces, word_starts=True)

    def __reduce__(self) -> tuple[type[SentencePieces], tuple[Path]]:
        assert self.path is not None
        return SentencePieces, (self.path,)


def _merge_all(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """The pieces with each such pair, from left to right, made one."""
    merged: list[str] = []
    place = 0
    while place < len(pieces):
        if tuple(pieces[place : place + 2]) == pair:
            merged.append("".join(pair))
            place += 2
        else:
            merged.append(pieces[place])
            place += 1
    return merged

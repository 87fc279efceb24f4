"""What is known of each sentence pair beside its text: its id, the corpus it came from and when."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knn_seq.errors import DamagedFile
from knn_seq.storage.ragged import Ragged, RaggedWriter

TEXTS = ("id", "corpus", "date")
HASHES = "hashes"  # two of each pair: of its id and of its source
DTYPES = {**dict.fromkeys(TEXTS, np.uint8), HASHES: np.uint64}


class PairInfo(NamedTuple):
    """What is known of a sentence pair."""

    id: str  # its own, or one that was given to it; no other pair of the datastore has it
    corpus: str  # the name of the file that it came from
    date: str  # when it was added, ISO 8601


class PairFile(Sequence[PairInfo]):
    """Ids, corpora and dates on disk: pairs[i] is the `PairInfo` of sentence pair i."""

    def __init__(self, path: Path) -> None:
        columns = Ragged.open_all(path, (*TEXTS, HASHES))
        self._columns = [columns[name] for name in TEXTS]
        if len({len(column) for column in columns.values()}) > 1 or len(columns[HASHES].items) != 2 * len(self):
            raise DamagedFile(f"{path} is damaged: its columns do not fit each other.")
        self._hashes: NDArray[np.uint64] = columns[HASHES].items.reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: Any) -> Any:
        return PairInfo(*(column[index].tobytes().decode() for column in self._columns))

    @property
    def id_hashes(self) -> NDArray[np.uint64]:
        """A hash of each id, (pairs,)."""
        return self._hashes[:, 0]

    @property
    def source_hashes(self) -> NDArray[np.uint64]:
        """A hash of each source, (pairs,)."""
        return self._hashes[:, 1]

    def of_corpus(self, name: str) -> NDArray[np.int64]:
        """The numbers of all pairs that came from the corpus of that name."""
        corpora, wanted = self._columns[1], np.frombuffer(name.encode(), np.uint8)
        rows = np.flatnonzero(corpora.lengths() == len(wanted))
        starts = corpora.offsets[rows]
        for place in range(len(wanted)):
            if not len(rows):
                break
            same = corpora.items[starts + place] == wanted[place]
            rows, starts = rows[same], starts[same]
        return rows


class PairWriter(RaggedWriter):
    """Writes ids, corpora and dates, so that a killed build can resume.

    Args:
        path: The final file, which `finish` makes.
        lengths: What `checkpoint` returned last, to resume from; None: start from the beginning.
    """

    def __init__(self, path: Path, lengths: Mapping[str, Sequence[int]] | None = None) -> None:
        super().__init__(path, DTYPES, lengths)

    def extend_pairs(self, infos: Sequence[PairInfo], sources: Iterable[str]) -> None:
        """Append what is known of sentence pairs, and their sources."""
        texts = zip((info.id for info in infos), sources, strict=True)
        hashes = [hashed(text) for both in texts for text in both]
        columns = [_column([info[place].encode() for info in infos]) for place in range(len(TEXTS))]
        self.extend(*columns, (np.array(hashes, np.uint64), [2] * len(infos)))


def hashed(text: str) -> int:
    """64 bits that tell a text from others nearly always."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _column(texts: list[bytes]) -> tuple[ArrayLike, ArrayLike]:
    return np.frombuffer(b"".join(texts), np.uint8), [len(text) for text in texts]

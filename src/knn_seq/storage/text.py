from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from knn_seq.errors import DamagedFile
from knn_seq.storage.ragged import Ragged, RaggedWriter

ROWS_AT_ONCE = 1 << 20
FEW_ROWS = 16
DTYPES = {"source": np.uint8, "target": np.uint8}


class TextFile(Sequence[tuple[str, str]]):
    """The text of sentence pairs on disk: texts[i] is (source, target)."""

    def __init__(self, path: Path) -> None:
        self._sources, self._targets = Ragged.open_all(path, ("source", "target")).values()
        if len(self._sources) != len(self._targets):
            raise DamagedFile(f"{path} is damaged: it has {len(self._sources)} sources, {len(self._targets)} targets.")

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, index: Any) -> Any:
        return self._sources[index].tobytes().decode(), self._targets[index].tobytes().decode()

    def with_source(self, source: str) -> list[int]:
        """The numbers of all sentence pairs with this source, without reading the others."""
        wanted = np.frombuffer(source.encode(), np.uint8)
        found: list[int] = []
        for start in range(0, len(self), ROWS_AT_ONCE):
            rows = start + np.flatnonzero(self._sources.lengths(start, start + ROWS_AT_ONCE) == len(wanted))
            # The last bytes tell sentences of a domain apart sooner than the first.
            for place in range(len(wanted) - 1, -1, -1):
                if len(rows) < FEW_ROWS:
                    break
                rows = rows[self._sources.items[self._sources.offsets[rows] + place] == wanted[place]]
            found += [row for row in rows.tolist() if np.array_equal(self._sources[row], wanted)]
        return found


class TextWriter(RaggedWriter):
    """Writes the text of sentence pairs, so that a killed build can resume.

    Args:
        path: The final file, which `finish` makes.
        lengths: What `checkpoint` returned last, to resume from; None: start from the beginning.
    """

    def __init__(self, path: Path, lengths: Mapping[str, Sequence[int]] | None = None) -> None:
        super().__init__(path, DTYPES, lengths)

    def extend_texts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Append sentence pairs."""
        sides: tuple[list[bytes], list[bytes]] = ([], [])
        for source, target in pairs:
            sides[0].append(source.encode())
            sides[1].append(target.encode())
        self.extend(*map(_column, sides))


def _column(texts: list[bytes]) -> tuple[ArrayLike, ArrayLike]:
    return np.frombuffer(b"".join(texts), np.uint8), [len(text) for text in texts]

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import DamagedFile
from knn_seq.storage.flat import open_flat
from knn_seq.storage.keys import open_keys
from knn_seq.storage.pairs import PairFile
from knn_seq.storage.ragged import Ragged
from knn_seq.storage.text import TextFile

_OPENED = ("values", "targets", "sources", "positions", "counts", "keys", "texts", "pairs")


class Segment:
    """Sentence pairs and their entries in a folder that never changes once it is finished.

    What it holds is opened when it is first asked for.

    Args:
        path: The folder.
        pruned: Whether not every token of every target is an entry.
    """

    def __init__(self, path: Path, pruned: bool = False) -> None:
        self.path, self.pruned = path, pruned

    @property
    def values_path(self) -> Path:
        """The entries' target tokens of each sentence pair."""
        return self.path / "values.h5"

    @property
    def sources_path(self) -> Path:
        """Source tokens of each sentence pair."""
        return self.path / "sources.h5"

    @property
    def keys_path(self) -> Path:
        """The key of each entry."""
        return self.path / "keys.h5"

    @property
    def targets_path(self) -> Path:
        """The complete targets of a pruned segment, whose values are only those of the entries that stayed."""
        return self.path / "targets.h5"

    @property
    def entries_path(self) -> Path:
        """The position of each entry of a pruned segment, and how many entries it stands for."""
        return self.path / "entries.h5"

    @property
    def text_path(self) -> Path:
        """Source and target text of each sentence pair."""
        return self.path / "corpus.h5"

    @property
    def pairs_path(self) -> Path:
        """Id, corpus and date of each sentence pair."""
        return self.path / "pairs.h5"

    @property
    def raw_sentences_path(self) -> Path:
        """A vector of each source sentence as its encoder gave it, if sentences are found by vectors."""
        return self.path / "sentences.raw.h5"

    def index_folder(self, metric: str) -> Path:
        """The index of the segment's own keys by that metric, if it has one."""
        return self.path / "index" / metric

    @cached_property
    def values(self) -> Ragged:
        """The entries' tokens of each sentence pair, int32; entry i of the segment is values.items[i]."""
        return Ragged.open(self.values_path)

    @cached_property
    def targets(self) -> Ragged:
        """Target tokens of each sentence pair, int32, entries or not."""
        return Ragged.open(self.targets_path) if self.pruned else self.values

    @cached_property
    def positions(self) -> NDArray[np.int32] | None:
        """The position of each entry in its target, (entries,); None: every token of every target is an entry."""
        return self._of_each_entry("positions")

    @cached_property
    def counts(self) -> NDArray[np.int32] | None:
        """How many entries each entry stands for, (entries,); None: itself alone."""
        return self._of_each_entry("counts")

    @cached_property
    def sources(self) -> Ragged:
        """Source tokens of each sentence pair, int32."""
        return Ragged.open(self.sources_path)

    @cached_property
    def keys(self) -> NDArray[Any]:
        """The key of each entry, (entries, dimension)."""
        return open_keys(self.keys_path)

    @cached_property
    def texts(self) -> TextFile:
        """Source and target text of each sentence pair."""
        return TextFile(self.text_path)

    @cached_property
    def pairs(self) -> PairFile:
        """Id, corpus and date of each sentence pair."""
        return PairFile(self.pairs_path)

    def open(self) -> None:
        """Open all files now: whoever deletes them later does not disturb."""
        for name in _OPENED:
            getattr(self, name)

    def close(self) -> None:
        """Let go of all files; they are opened again when they are asked for."""
        for name in _OPENED:
            self.__dict__.pop(name, None)

    def __len__(self) -> int:
        """The number of sentence pairs."""
        return len(self.values)

    def __bool__(self) -> bool:
        return True  # not len(), which would open a file

    def _of_each_entry(self, name: str) -> NDArray[Any] | None:
        if not self.pruned:
            return None
        column = open_flat(self.entries_path).get(name)
        if column is not None and column.shape != self.values.items.shape:
            raise DamagedFile(f"{self.entries_path} is damaged: its {name} do not fit the datastore's entries.")
        return column

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knn_seq.errors import DamagedFile, KnnSeqError, NotFound
from knn_seq.models import PairTokenizer, TokenPair
from knn_seq.storage.flat import open_flat
from knn_seq.storage.keys import open_keys
from knn_seq.storage.lock import FolderLock
from knn_seq.storage.manifest import MANIFEST_NAME, Manifest, SubsetInfo
from knn_seq.storage.ragged import Ragged
from knn_seq.storage.text import TextFile

SENTENCES_NAME, WHITENING_NAME = "sentences.h5", "whitening.h5"
CODES_NAME, CODEC_NAME = "codes.h5", "codec.faiss"

T = TypeVar("T")


class DatastoreFolder:
    """A datastore on disk.  What it holds is opened when it is first asked for; reading writes nothing.

    Args:
        path: The folder; it need not be there yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def values_path(self) -> Path:
        """Target tokens of each sentence pair."""
        return self.path / "values.h5"

    @property
    def sources_path(self) -> Path:
        """Source tokens of each sentence pair."""
        return self.path / "sources.h5"

    @property
    def keys_path(self) -> Path:
        """The key of each target token."""
        return self.path / "keys.h5"

    @property
    def targets_path(self) -> Path:
        """The complete targets of a pruned datastore, whose values are only those of the entries that stayed."""
        return self.path / "targets.h5"

    @property
    def entries_path(self) -> Path:
        """The position of each entry of a pruned datastore, and how many entries it stands for."""
        return self.path / "entries.h5"

    @property
    def text_path(self) -> Path:
        """Source and target text of each sentence pair."""
        return self.path / "corpus.h5"

    @property
    def sentences_path(self) -> Path:
        """A vector of each source sentence, if it is prepared for subset search by vectors."""
        return self.path / self._subset_folder("vectors") / SENTENCES_NAME

    @property
    def raw_sentences_path(self) -> Path:
        """The vectors before they are whitened; there only while a datastore is built."""
        return self.path / "sentences.raw.h5"

    @property
    def whitening_path(self) -> Path:
        """The whitening of the vectors: mean and matrix."""
        return self.path / self._subset_folder("vectors") / WHITENING_NAME

    @property
    def sentence_index_folder(self) -> Path:
        """The sentence search."""
        return self.path / self.prepared_subset().sentence_index.folder

    @property
    def codes_path(self) -> Path:
        """The code of each key."""
        return self.path / self._subset_folder("codes") / CODES_NAME

    @property
    def codec_path(self) -> Path:
        """The codec that turns keys into codes."""
        return self.path / self._subset_folder("codes") / CODEC_NAME

    @property
    def combiners_path(self) -> Path:
        """The folder of the weights of trained combiners."""
        return self.path / "combiners"

    def index_folder(self, name: str) -> Path:
        """The folder of the index of that name."""
        index = self.manifest.indexes.get(name)
        if index is None:
            known = ", ".join(self.manifest.indexes) or "none"
            raise NotFound(f"{self.path} has no index '{name}': it has {known}.")
        return self.path / index.folder

    def exists(self) -> bool:
        """Whether there is a datastore, finished or not."""
        return (self.path / MANIFEST_NAME).exists()

    def lock(self) -> FolderLock:
        """The lock to hold while writing."""
        return FolderLock(self.path)

    @cached_property
    def manifest(self) -> Manifest:
        """What the datastore says of itself."""
        return Manifest.load(self.path)

    def save(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        manifest.save(self.path)
        self.__dict__["manifest"] = manifest

    def reload(self) -> None:
        """Read again, when it is asked for, what another step or process may have replaced."""
        for name in ("manifest", "sentence_vectors", "codes"):
            self.__dict__.pop(name, None)

    def open_named(self, open: Callable[[], T]) -> T:
        """What a function opens of the folders, combiners and glossary that the manifest names.

        Should another process have replaced one of them since the manifest was read, the new one is opened.
        """
        while True:
            try:
                return open()
            except (KnnSeqError, OSError):
                before = self._named()
                self.reload()
                if self._named() == before:
                    raise

    def _named(self) -> tuple[set[str], set[str], str | None]:
        glossary = self.manifest.glossary
        return self.manifest.folders(), self.manifest.combiner_files(), glossary.file if glossary else None

    @cached_property
    def values(self) -> Ragged:
        """The entries' tokens of each sentence pair, int32; entry i of the datastore is values.items[i]."""
        return Ragged.open(self.values_path)

    @cached_property
    def targets(self) -> Ragged:
        """Target tokens of each sentence pair, int32, entries or not."""
        return self.values if self.manifest.pruned is None else Ragged.open(self.targets_path)

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
    def sentence_vectors(self) -> NDArray[Any]:
        """A vector of each source sentence, (sentences, dimension)."""
        return open_keys(self.sentences_path, "vectors")

    @cached_property
    def codes(self) -> NDArray[Any]:
        """The code of each entry's key, (entries, bytes) uint8."""
        return open_keys(self.codes_path, "codes")

    @cached_property
    def texts(self) -> TextFile:
        """Source and target text of each sentence pair."""
        return TextFile(self.text_path)

    def token_pairs(self, numbers: Sequence[int], tokenizer: PairTokenizer | None = None) -> list[TokenPair]:
        """Some of the sentence pairs as the model sees them; they are stored, so no tokenizer is needed."""
        return [TokenPair(self.sources[number].tolist(), self.targets[number].tolist()) for number in numbers]

    def locate(self, entries: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sentence pair of each entry and its place in the target, both in the same shape; -1 for no entry."""
        ids = np.asarray(entries, np.int64)
        sentences = self.values.row_of(ids)
        if self.positions is None:
            return sentences, np.where(ids < 0, -1, ids - self.values.offsets[np.maximum(sentences, 0)])
        return sentences, np.where(ids < 0, -1, self.positions[np.maximum(ids, 0)])

    def close(self) -> None:
        """Let go of all files; they are opened again when they are asked for."""
        for name in (
            "values",
            "targets",
            "positions",
            "counts",
            "sources",
            "keys",
            "sentence_vectors",
            "codes",
            "texts",
        ):
            self.__dict__.pop(name, None)

    def __bool__(self) -> bool:
        return True  # not len(), which would open a file

    def __len__(self) -> int:
        return len(self.values.items)

    def _of_each_entry(self, name: str) -> NDArray[Any] | None:
        if self.manifest.pruned is None:
            return None
        column = open_flat(self.entries_path).get(name)
        if column is not None and column.shape != self.values.items.shape:
            raise DamagedFile(f"{self.entries_path} is damaged: its {name} do not fit the datastore's entries.")
        return column

    def prepared_subset(self) -> SubsetInfo:
        """What subset search was prepared with; a `KnnSeqError` if it was not."""
        if self.manifest.subset is None:
            raise KnnSeqError(
                f"{self.path} is not prepared for subset search: "
                f"run `knn-seq index {self.path} --sentence-search encoder`."
            )
        return self.manifest.subset

    def _subset_folder(self, part: str) -> str:
        folder: str | None = getattr(self.prepared_subset(), f"{part}_folder")
        if folder is None:
            raise NotFound(f"{self.path} is prepared for a subset search that has no {part}.")
        return folder

    def require_complete(self) -> None:
        """Raise a `KnnSeqError` if the build is unfinished."""
        step = self.manifest.unfinished_step()
        if step is not None:
            raise KnnSeqError(
                f"{self.path} is not complete: its build stopped at '{step}'; run the same command again to resume."
            )

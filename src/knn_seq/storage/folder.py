from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.models import PairTokenizer, TokenPair
from knn_seq.storage.keys import open_keys
from knn_seq.storage.lock import FolderLock
from knn_seq.storage.manifest import LONGEST_NAME, MANIFEST_NAME, Manifest, SubsetInfo, is_index_name
from knn_seq.storage.ragged import Ragged
from knn_seq.storage.text import TextFile


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
    def text_path(self) -> Path:
        """Source and target text of each sentence pair."""
        return self.path / "corpus.h5"

    @property
    def sentences_path(self) -> Path:
        """A vector of each source sentence."""
        return self.path / "sentences.h5"

    @property
    def raw_sentences_path(self) -> Path:
        """The vectors before they are whitened; there only while a datastore is built."""
        return self.path / "sentences.raw.h5"

    @property
    def whitening_path(self) -> Path:
        """The whitening of the vectors: mean and matrix."""
        return self.path / "whitening.h5"

    @property
    def sentence_index_folder(self) -> Path:
        """The sentence search."""
        return self.path / "sentences"

    @property
    def codes_path(self) -> Path:
        """The code of each key."""
        return self.path / "codes.h5"

    @property
    def codec_path(self) -> Path:
        """The codec that turns keys into codes."""
        return self.path / "codec.faiss"

    def index_folder(self, name: str) -> Path:
        """The folder of the index of that name."""
        if not is_index_name(name):
            raise InvalidSetting(
                f"An index cannot be called {name!r}: leave out slashes, control characters and a leading dot, "
                f"and take at most {LONGEST_NAME} bytes."
            )
        return self.path / "index" / name

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

    @cached_property
    def values(self) -> Ragged:
        """Target tokens of each sentence pair, int32; entry i of the datastore is values.items[i]."""
        return Ragged.open(self.values_path)

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
        return [TokenPair(self.sources[number].tolist(), self.values[number].tolist()) for number in numbers]

    def locate(self, entries: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sentence pair of each entry and its place in the target, both in the same shape; -1 for no entry."""
        ids = np.asarray(entries, np.int64)
        sentences = self.values.row_of(ids)
        return sentences, np.where(ids < 0, -1, ids - self.values.offsets[np.maximum(sentences, 0)])

    def __bool__(self) -> bool:
        return True  # not len(), which would open a file

    def __len__(self) -> int:
        return len(self.values.items)

    def prepared_subset(self) -> SubsetInfo:
        """What subset search was prepared with; a `KnnSeqError` if it was not."""
        if self.manifest.subset is None:
            raise KnnSeqError(
                f"{self.path} is not prepared for subset search: "
                f"run `knn-seq index {self.path} --sentence-search encoder`."
            )
        return self.manifest.subset

    def require_complete(self) -> None:
        """Raise a `KnnSeqError` if the build is unfinished."""
        step = self.manifest.unfinished_step()
        if step is not None:
            raise KnnSeqError(
                f"{self.path} is not complete: its build stopped at '{step}'; run the same command again to resume."
            )

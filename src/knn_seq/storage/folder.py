from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knn_seq.errors import DamagedFile, KnnSeqError, NotFound
from knn_seq.models import PairTokenizer, TokenPair
from knn_seq.storage.concatenated import joined_ragged, joined_rows, joined_sequence
from knn_seq.storage.deletions import DELETIONS, read_deletions
from knn_seq.storage.keys import open_keys
from knn_seq.storage.lock import FolderLock
from knn_seq.storage.manifest import MANIFEST_NAME, Manifest, SubsetInfo
from knn_seq.storage.pairs import PairInfo
from knn_seq.storage.ragged import Ragged
from knn_seq.storage.replacement import SEGMENTS
from knn_seq.storage.segment import Segment

if TYPE_CHECKING:
    from typing_extensions import Self

SENTENCES_NAME, WHITENING_NAME = "sentences.h5", "whitening.h5"
CODES_NAME, CODEC_NAME = "codes.h5", "codec.faiss"

_VIEWS = (
    *("values", "targets", "positions", "counts", "sources", "keys", "texts", "pairs", "deleted", "deleted_entries"),
    *("sentence_vectors", "codes"),
)

T = TypeVar("T")


class DatastoreFolder:
    """A datastore on disk.  What it holds is opened when it is first asked for; reading writes nothing.

    Args:
        path: The folder; it need not be there yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def sentences_path(self) -> Path:
        """A vector of each source sentence, if it is prepared for subset search by vectors."""
        return self.path / self._subset_folder("vectors") / SENTENCES_NAME

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

    def lock(self, timeout: float = 0.0) -> FolderLock:
        """The lock to hold while writing; another writer is waited for so many seconds."""
        return FolderLock(self.path, timeout)

    @cached_property
    def manifest(self) -> Manifest:
        """What the datastore says of itself."""
        self._stamp = stamp_of(self.path)  # before: what is written meanwhile shows later as a change
        return Manifest.load(self.path)

    def save(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        manifest.save(self.path)
        self.reload()
        self._stamp = stamp_of(self.path)
        self.__dict__["manifest"] = manifest

    def reload(self) -> None:
        """Read again, when it is asked for, what another step or process may have replaced."""
        kept = {segment.path: segment for segment in self.__dict__.get("segments", ())}
        self.__dict__["_kept_segments"] = {**self.__dict__.get("_kept_segments", {}), **kept}
        self._forget("manifest", "segments", *_VIEWS)

    def changed(self) -> bool:
        """Whether the manifest was replaced since it was read; costs as much as looking at one file."""
        return "manifest" in self.__dict__ and stamp_of(self.path) != self._stamp

    def snapshot(self) -> Self:
        """The datastore as it is now: all its segments are open, and what others write or delete does not show."""
        current = copy.copy(self)
        current.reload()
        current.open_named(current._open_segments)
        return current

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

    def _named(self) -> tuple[set[str], set[str], str | None, int]:
        manifest, glossary = self.manifest, self.manifest.glossary
        return manifest.folders(), manifest.combiner_files(), glossary.file if glossary else None, manifest.generation

    @cached_property
    def segments(self) -> list[Segment]:
        """The segments; sentence pairs and entries are numbered through them in this order."""
        kept: dict[Path, Segment] = self.__dict__.pop("_kept_segments", {})
        made = []
        for name, info in self.manifest.segments.items():
            path = self.path / SEGMENTS / name
            made.append(kept.get(path) or Segment(path, info.pruned))
        return made

    @property
    def base(self) -> Segment:
        """The first segment, which the indexes and codes are of."""
        return self.segments[0]

    def _open_segments(self) -> None:
        for segment, info in zip(self.segments, self.manifest.segments.values(), strict=True):
            segment.open()
            if (len(segment), len(segment.keys)) != (info.sentences, info.tokens):
                raise DamagedFile(
                    f"{segment.path} is damaged: it has {len(segment):,} sentence pairs and {len(segment.keys):,} "
                    f"entries instead of {info.sentences:,} and {info.tokens:,}."
                )
        _ = self.deleted

    @cached_property
    def values(self) -> Ragged:
        """The entries' tokens of each sentence pair, int32; entry i of the datastore is values.items[i]."""
        return joined_ragged([segment.values for segment in self.segments])

    @cached_property
    def targets(self) -> Ragged:
        """Target tokens of each sentence pair, int32, entries or not."""
        pruned = any(segment.pruned for segment in self.segments)
        return joined_ragged([segment.targets for segment in self.segments]) if pruned else self.values

    @cached_property
    def positions(self) -> NDArray[np.int32] | None:
        """The position of each entry in its target, (entries,); None: every token of every target is an entry."""
        if all(segment.positions is None for segment in self.segments):
            return None
        parts = [
            each.values.places_in_rows(np.arange(len(each.values.items))).astype(np.int32)
            if each.positions is None
            else each.positions
            for each in self.segments
        ]
        return joined_rows(parts)  # type: ignore[no-any-return]

    @cached_property
    def counts(self) -> NDArray[np.int32] | None:
        """How many entries each entry stands for, (entries,); None: itself alone."""
        if all(segment.counts is None for segment in self.segments):
            return None
        parts = [
            np.ones(len(segment.values.items), np.int32) if segment.counts is None else segment.counts
            for segment in self.segments
        ]
        return joined_rows(parts)  # type: ignore[no-any-return]

    @cached_property
    def sources(self) -> Ragged:
        """Source tokens of each sentence pair, int32."""
        return joined_ragged([segment.sources for segment in self.segments])

    @cached_property
    def keys(self) -> NDArray[Any]:
        """The key of each entry, (entries, dimension)."""
        return joined_rows([segment.keys for segment in self.segments])  # type: ignore[no-any-return]

    @cached_property
    def sentence_vectors(self) -> NDArray[Any]:
        """A vector of each source sentence of the first segment, (sentences, dimension)."""
        return open_keys(self.sentences_path, "vectors")

    @cached_property
    def codes(self) -> NDArray[Any]:
        """The code of each key of the first segment, (entries, bytes) uint8."""
        return open_keys(self.codes_path, "codes")

    @cached_property
    def texts(self) -> Sequence[tuple[str, str]]:
        """Source and target text of each sentence pair, deleted or not."""
        return joined_sequence([segment.texts for segment in self.segments])

    @cached_property
    def pairs(self) -> Sequence[PairInfo]:
        """Id, corpus and date of each sentence pair, deleted or not."""
        return joined_sequence([segment.pairs for segment in self.segments])

    @cached_property
    def deleted(self) -> NDArray[np.int64]:
        """The numbers of the sentence pairs that are deleted, (n,), ascending."""
        info, total = self.manifest.deleted, sum(each.sentences for each in self.manifest.segments.values())
        if info is None:
            return np.empty(0, np.int64)
        return read_deletions(self.path / DELETIONS / info.file, total)

    @cached_property
    def deleted_entries(self) -> NDArray[np.bool_] | None:
        """Whether the sentence pair of each entry is deleted, (entries,); None: none is."""
        if not len(self.deleted):
            return None
        deleted = np.zeros(len(self), bool)
        deleted[self.values.places_of(self.deleted)] = True
        return deleted

    def live_sentences(self) -> NDArray[np.int64]:
        """The numbers of the sentence pairs that are not deleted, ascending."""
        live = np.ones(sum(map(len, self.segments)), bool)
        live[self.deleted] = False
        return np.flatnonzero(live)

    def live_texts(self) -> Sequence[tuple[str, str]]:
        """Source and target text of each sentence pair that is not deleted."""
        return [self.texts[number] for number in self.live_sentences().tolist()] if len(self.deleted) else self.texts

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

    def places(self, entries: ArrayLike) -> NDArray[np.int64]:
        """Where the token of each entry stands among the items of `targets`, in the same shape; -1 for no entry."""
        if self.positions is None:
            return np.asarray(entries, np.int64)
        sentences, positions = self.locate(entries)
        return np.where(sentences < 0, -1, self.targets.offsets[sentences] + positions)

    def close(self) -> None:
        """Let go of all files; they are opened again when they are asked for."""
        for segment in self.__dict__.get("segments", ()):
            segment.close()
        self._forget(*_VIEWS)

    def __bool__(self) -> bool:
        return True  # not len(), which would open a file

    def __len__(self) -> int:
        return len(self.values.items)

    def _forget(self, *names: str) -> None:
        for name in names:
            self.__dict__.pop(name, None)

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

    def require_compacted(self, action: str) -> None:
        """Raise a `KnnSeqError` if something was added or deleted since the last compaction."""
        if not self.manifest.compacted:
            raise KnnSeqError(
                f"{self.path} has additions or deletions, which cannot be {action}: run `knn-seq compact {self.path}` "
                "first."
            )

    def require_complete(self) -> None:
        """Raise a `KnnSeqError` if the build is unfinished."""
        step = self.manifest.unfinished_step()
        if step is not None:
            raise KnnSeqError(
                f"{self.path} is not complete: its build stopped at '{step}'; run the same command again to resume."
            )


def stamp_of(store: Path) -> tuple[int, ...]:
    """What tells a manifest from the one that replaces it."""
    try:
        status = os.stat(store / MANIFEST_NAME)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, NotEnoughMemory, NotFound
from knn_seq.index.result import SearchResult as SearchResult
from knn_seq.index.result import Vectors as Vectors
from knn_seq.registry import Option, Registry, check_options
from knn_seq.runtime.memory import MemoryNeed, require_memory
from knn_seq.runtime.sizes import format_bytes
from knn_seq.settings import DISTANCE_METRICS
from knn_seq.storage.atomic import disk_errors, partial_of, publish, read_json, write_json

DESCRIPTION = "index.json"
TRAINING_COPIES = 6  # of the sample that training holds at a time, at the most
CHUNK_BYTES = 64 << 20  # of vectors that are converted to float32 at a time


class SearchIndex(ABC):
    """Finds the keys that are nearest to a query.

    The public methods check what they are given; an implementation writes those with an underscore, which get float32
    tensors of the right shape, finite, on the device of the caller, and of length one if the metric is the cosine.

    Distances: l2 is the squared Euclidean distance, ip minus the inner product, cosine 1 minus the cosine.

    Args:
        dimension: Of keys and queries.
        metric: "l2", "ip" or "cosine".
        recipe: What the implementation builds, in its own words.
        **options: Those of `declared_options`; what searches are not told otherwise, they take from here.
    """

    declared_options: Mapping[str, Option] = {}
    file_name: ClassVar[str] = "index.bin"

    def __init__(self, dimension: int, metric: str = "l2", recipe: str | None = None, **options: Any) -> None:
        if metric not in DISTANCE_METRICS:
            raise InvalidSetting(f"There is no metric '{metric}': choose from {', '.join(DISTANCE_METRICS)}.")
        self.dimension, self.metric, self.recipe = dimension, metric, recipe
        defaults = {name: option.default for name, option in self.declared_options.items()}
        self.options: dict[str, Any] = {**defaults, **check_options(self._title, self.declared_options, options)}
        self.writable = True  # what is loaded for searching only may stay on the disk
        self.removed = False  # whether entries were taken out, so that numbers are no longer used up to the size

    @classmethod
    def build(
        cls,
        keys: NDArray[Any],
        recipe: str | None = None,
        metric: str = "l2",
        sample_seed: int = 0,
        on_progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> SearchIndex:
        """An index of all keys, trained on a random sample of them.

        Args:
            keys: (entries, dimension); it may be a memory map larger than memory.
            recipe: What to build; None: what fits the number of keys.
            metric: As for the class.
            sample_seed: Chooses the sample.
            on_progress: Called with the number of keys after each chunk that was added.
            **options: As for the class.
        """
        entries, dimension = keys.shape
        index = cls(dimension, metric, cls.complete_recipe(recipe, entries, dimension, metric), **options)
        index.train_on_sample(keys, sample_seed)
        if index.needs_keys:
            index.attach_keys(keys)
        for chunk in index._chunks(entries):
            index.add(keys[chunk])
            if on_progress is not None:
                on_progress(len(keys[chunk]))
        return index

    def train_on_sample(self, keys: NDArray[Any], seed: int = 0, memory: int | None = None) -> None:
        """Train on a random sample of the keys, (entries, dimension).

        Args:
            keys: May be a memory map larger than memory.
            seed: Chooses the sample.
            memory: Bytes that training may take.
        """
        size = wanted = min(self.training_size(len(keys)), len(keys))
        if memory is not None:  # the sample in float32, its transformed copy, and space to work
            size = min(size, max(memory // (TRAINING_COPIES * 4 * self.dimension), 1))
        if not size:
            return
        # In order, so that a memory map is read from front to back.
        rows = np.sort(np.random.default_rng(seed).choice(len(keys), size, replace=False, shuffle=False))
        try:
            self.train(keys[rows])
        except InvalidSetting as error:
            if size == wanted:
                raise
            raise NotEnoughMemory(
                f"The memory to train the index ({format_bytes(memory or 0)}) holds {size:,} of the {wanted:,} keys of "
                f"its sample, which do not suffice: allow more (--memory-limit), or choose a simpler index. {error}"
            ) from error

    def train(self, sample: Vectors) -> None:
        """Learn from a sample of the keys, (n, dimension), whatever the index has to learn."""
        self._require_shape(sample)
        self._train(self._prepared(sample))

    def add(self, keys: Vectors, ids: Tensor | NDArray[np.int64] | None = None) -> None:
        """Add entries, in chunks of bounded memory.

        Args:
            keys: (n, dimension).
            ids: (n,), at least 0; None: the entries are numbered on, from the size of the index.
        """
        self._require_shape(keys)
        if ids is None and self.removed:
            raise KnnSeqError("Entries were removed from the index: keys that are added now need ids.")
        first = len(self)
        numbers = torch.arange(first, first + len(keys)) if ids is None else torch.as_tensor(ids).to("cpu", torch.int64)
        if numbers.shape != (len(keys),) or bool((numbers < 0).any()):
            raise KnnSeqError(f"{len(keys)} keys need as many ids, none of them negative.")
        for chunk in self._chunks(len(keys)):
            self._add(self._prepared(keys[chunk]), numbers[chunk])

    def search(
        self,
        queries: Vectors,
        k: int,
        options: Mapping[str, Any] | None = None,
        deleted: NDArray[np.bool_] | None = None,
    ) -> SearchResult:
        """The k nearest entries of each query, (n, dimension), on the device of the queries.

        Args:
            queries: (n, dimension).
            k: How many.
            options: Those of `declared_options` that are to be different in this search; the index stays as it is.
            deleted: Whether the entry of each id is not to be found, (entries,); for those that `skips_deleted`.
        """
        self._require_shape(queries)
        if k < 1:
            raise InvalidSetting(f"k must be at least 1, not {k}.")
        prepared = self._prepared(queries, "query")
        chosen = self.search_options(options)
        possible = min(k, len(self)) if len(prepared) else 0
        if not possible:
            near, found = prepared[:, :0], prepared[:, :0]
        elif deleted is None:
            near, found = self._search(prepared, possible, chosen)
        else:
            near, found = self._search_without(prepared, possible, chosen, deleted)
        distances, ids = near.to(prepared.device, torch.float32), found.to(prepared.device, torch.int64)
        if possible < k:
            distances, ids = F.pad(distances, (0, k - possible)), F.pad(ids, (0, k - possible), value=-1)
        return SearchResult(distances.masked_fill(ids < 0, torch.inf), ids)

    def search_options(self, options: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """The options of a search: those given, checked, and the index's own for all others, or where they are None."""
        if not options:
            return self.options
        checked = check_options(self._title, self.declared_options, options, per_search=True)
        return {**self.options, **{name: value for name, value in checked.items() if value is not None}}

    def remove(self, ids: Tensor | NDArray[np.int64]) -> int:
        """Take entries out; the others keep their ids, and afterwards `add` has to be told the ids of new ones.

        Args:
            ids: (n,); those that are not in the index are ignored, so that a removal may be repeated.

        Returns:
            How many entries were taken out.
        """
        numbers = torch.as_tensor(ids)
        if numbers.ndim != 1 or numbers.is_floating_point() or numbers.dtype == torch.bool:
            raise KnnSeqError("The ids of the entries to remove must be whole numbers in one row.")
        before = len(self)
        self._remove(torch.from_numpy(np.unique(numbers.to("cpu", torch.int64).numpy())))
        self.removed |= len(self) < before
        return before - len(self)

    def save(self, folder: Path) -> None:
        """Write the index into a folder; whenever the process is killed, what lies there is complete or refused."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        partial = partial_of(path)
        try:
            with disk_errors(path):
                self._save(partial)
            size = partial.stat().st_size
            (folder / DESCRIPTION).unlink(missing_ok=True)  # it would not fit the new file
            publish(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        write_json(folder / DESCRIPTION, {**self.describe(), "bytes": size})

    @classmethod
    def load(cls, folder: Path, writable: bool = False, **options: Any) -> SearchIndex:
        """The index that `save` wrote.

        Args:
            folder: Where it was saved.
            writable: Entries will be added or merged, so none may be mapped from the disk.
            **options: Other ones than it was saved with.
        """
        path = folder / cls.file_name
        try:
            description = read_json(folder / DESCRIPTION)
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise NotFound(
                f"There is no complete index in {folder} ({error.filename} is missing): build it."
            ) from error
        try:
            expected = description["bytes"]
            known = {name: description[name] for name in ("dimension", "metric", "recipe")}
            options = {**description["options"], **options}
        except (KeyError, TypeError) as error:
            raise DamagedFile(f"{folder / DESCRIPTION} does not describe an index: build the index again.") from error
        if size != expected:
            raise DamagedFile(f"{path} is damaged ({size:,} bytes instead of {expected:,}): build the index again.")
        index = cls(**known, **options)
        index.writable = writable
        require_memory(index._memory_to_load(path), f"The index in {folder}")
        index._load(path)
        index.removed = bool(description.get("removed"))
        return index

    @classmethod
    def delete_external(cls, folder: Path, in_use_by: Collection[Path] = ()) -> None:
        """Delete what a saved index stores outside of its folder, before that is deleted.

        Args:
            folder: Where it was saved.
            in_use_by: The folders of other indexes: what those store is not deleted.
        """
        return  # nearly all store everything in their folder

    def describe(self) -> dict[str, Any]:
        """What the index is, for a manifest in JSON."""
        return {
            "recipe": self.recipe,
            "metric": self.metric,
            "dimension": self.dimension,
            "options": dict(self.options),
            "entries": len(self),
            "memory": self.memory,
            "removed": self.removed,
        }

    @abstractmethod
    def __len__(self) -> int:
        """How many entries there are."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """How many bytes the index takes in memory, about."""

    @classmethod
    def recipe_for(cls, entries: int, dimension: int, metric: str = "l2", memory: int | None = None) -> str | None:
        """The recipe that fits so many keys, and so many bytes."""
        return None

    @classmethod
    def complete_recipe(
        cls, recipe: str | None, entries: int, dimension: int, metric: str = "l2", memory: int | None = None
    ) -> str | None:
        """What a user wrote, with what it leaves open chosen as `recipe_for` does."""
        return recipe or cls.recipe_for(entries, dimension, metric, memory)

    def expected_memory(self, entries: int) -> int:
        """How many bytes the index takes with so many entries, about."""
        return 4 * self.dimension * entries

    @property
    def needs_keys(self) -> bool:
        """Whether it ranks by the stored keys, which have to be attached first."""
        return False

    def attach_keys(self, keys: NDArray[Any]) -> None:
        """Let the index read the keys that it was made of, (entries, dimension); the id of an entry is its row."""
        raise KnnSeqError(f"{type(self).__name__} does not rank by stored keys: it needs none.")

    @property
    def mergeable(self) -> bool:
        """Whether parts of it can be built one by one and merged."""
        return False

    @property
    def skips_deleted(self) -> bool:
        """Whether a search can be told which entries it is not to find, at little cost."""
        return False

    @property
    def growable(self) -> bool:
        """Whether entries with numbers of their own may be added to it after it was saved, at little cost."""
        return False

    @property
    def can_stay_on_disk(self) -> bool:
        """Whether entries may lie on the disk, so that it may be larger than memory."""
        return False

    def clear(self) -> None:
        """Delete all entries, and nothing that was learned; for mergeable indexes."""
        raise KnnSeqError(f"{type(self).__name__} cannot be built in parts: add all keys to one index.")

    def part(self) -> SearchIndex:
        """This index, trained and empty, as it is filled with some of the entries to be saved and merged with others.

        For mergeable indexes; it may use this one, and looks like it, but cannot always be searched.
        """
        return self

    def merge(self, parts: Sequence[Path]) -> None:
        """Take over all entries of saved parts of this trained, empty index, in their order; for mergeable indexes."""
        raise KnnSeqError(f"{type(self).__name__} cannot be built in parts: add all keys to one index.")

    def merge_on_disk(self, parts: Sequence[Path], folder: Path) -> None:
        """Merge saved parts into that folder without holding them in memory; for those that can stay on disk."""
        raise KnnSeqError(f"{type(self).__name__} has to lie in memory: it cannot be merged on disk.")

    def training_size(self, entries: int) -> int:
        """How many keys of so many `build` trains on; 0: there is nothing to learn."""
        return 0

    @abstractmethod
    def _train(self, sample: Tensor) -> None:
        """Learn from a sample, (n, dimension)."""

    @abstractmethod
    def _add(self, keys: Tensor, ids: Tensor) -> None:
        """Add keys, (n, dimension), under their ids, (n,) int64 on the CPU."""

    @abstractmethod
    def _search(self, queries: Tensor, k: int, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Distances and ids, (n, k), nearest first; a missing entry has id -1.

        Args:
            queries: (n, dimension).
            k: At most the size of the index.
            options: A value for each of the declared options.
        """

    def _search_without(
        self, queries: Tensor, k: int, options: Mapping[str, Any], deleted: NDArray[np.bool_]
    ) -> tuple[Tensor, Tensor]:
        raise KnnSeqError(f"{type(self).__name__} finds deleted entries, too: ask for more, and drop them.")

    def _remove(self, ids: Tensor) -> None:
        """Take out the entries with these ids, (n,) int64 on the CPU, sorted; some may not be there."""
        raise KnnSeqError(f"{type(self).__name__} cannot remove entries: build the index again without them.")

    @abstractmethod
    def _save(self, path: Path) -> None:
        """Write everything into one file."""

    def _memory_to_load(self, path: Path) -> MemoryNeed:
        """What `_load` takes at the least."""
        return MemoryNeed(path.stat().st_size)

    @abstractmethod
    def _load(self, path: Path) -> None:
        """Read what `_save` wrote, of this dimension, metric and recipe."""

    @property
    def _title(self) -> str:
        return f"The index '{INDEXES.name_of(type(self))}'"

    def _chunks(self, rows: int) -> Iterator[slice]:
        step = max(CHUNK_BYTES // (4 * self.dimension), 1)
        return (slice(start, start + step) for start in range(0, rows, step))

    def _require_shape(self, vectors: Vectors) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            shape = " × ".join(map(str, vectors.shape))
            raise InvalidSetting(f"The index takes vectors of dimension {self.dimension}, a row each, not {shape}.")

    def _prepared(self, vectors: Vectors, what: str = "key") -> Tensor:
        if isinstance(vectors, np.ndarray):
            vectors = torch.from_numpy(np.array(vectors, np.float32))  # a copy: a memory map may be read-only
        vectors = vectors.detach().float()
        # One sum tells nearly always: only where it is not finite is each of the numbers looked at.
        if not math.isfinite(vectors.sum()) and not (finite := vectors.isfinite().all(dim=1)).all():
            row = int(finite.logical_not().nonzero()[0])
            raise KnnSeqError(f"The {what} in row {row} has a value that is not a finite number: check the model.")
        return F.normalize(vectors, dim=1) if self.metric == "cosine" else vectors


INDEXES: Registry[SearchIndex] = Registry(SearchIndex, "index", "index")  # type: ignore[type-abstract]

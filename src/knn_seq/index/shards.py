"""Several indexes of one kind, searched in parallel, as if they were one.

An entry lies in the shard that its id leaves over: `id % count`.  So nobody has to know how many entries there will be,
shards never differ by more than one entry, and whoever removes, merges or resumes knows where an entry lies.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, NotFound
from knn_seq.index.base import DESCRIPTION, INDEXES, SearchIndex
from knn_seq.index.faiss import FaissIndex
from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.layers import inverted_lists, layers
from knn_seq.storage.atomic import partial_of, publish_folder, read_json, sync_folder, write_json

SHARDS = 4  # if the user does not say how many
EXAMPLE = "4xIVF1024,PQ64"
MAX_SHARDS = 1024


@INDEXES.register("shards")
class ShardsIndex(SearchIndex):
    """A few indexes, trained once, each with some of the entries in a folder of its own.

    All have the same centroids and codebooks, so their distances can be compared, and a search finds what one index of
    the same recipe would find.

    Args:
        dimension: Of keys and queries.
        metric: "l2", "ip" or "cosine".
        recipe: How many and what: "4xIVF1024,PQ64" of faiss, or "4xusearch", "4xusearch:HNSW16,f32"; None: "4xFlat".
        **options: Those that the indexes declare.
    """

    file_name = "shards.json"

    def __init__(self, dimension: int, metric: str = "l2", recipe: str | None = None, **options: Any) -> None:
        count, inner = _parsed(recipe or f"{SHARDS}xFlat")
        if inner is None:
            raise InvalidSetting(f"The recipe '{recipe}' does not say what the shards are: write it like '{EXAMPLE}'.")
        kind, inner_recipe = _kind(inner)
        make = partial(_shard, INDEXES.get(kind), dimension, metric, inner_recipe)
        one = make(options)  # as an index of all entries would be
        self.declared_options = one.declared_options
        super().__init__(dimension, metric, f"{count}x{inner}", **one.options)
        self.shards = [make(self._options_of_a_shard(one.options, count)) for _ in range(count)]
        self._origins: list[_Origin | None] = [None] * count

    @classmethod
    def recipe_for(cls, entries: int, dimension: int, metric: str = "l2", memory: int | None = None) -> str:
        """Some shards of what one index of all the keys would be: with the same lists they find the same."""
        return cls.complete_recipe(str(SHARDS), entries, dimension, metric, memory)

    @classmethod
    def complete_recipe(
        cls, recipe: str | None, entries: int, dimension: int, metric: str = "l2", memory: int | None = None
    ) -> str:
        """The recipe with what it leaves open: "4" is four of faiss's default for all the keys."""
        count, inner = _parsed(recipe or str(SHARDS))
        kind, inner_recipe = _kind(inner or "faiss")
        inner_recipe = INDEXES.get(kind).complete_recipe(inner_recipe, entries, dimension, metric, memory)
        return f"{count}x{':'.join(filter(None, (kind, inner_recipe)))}".replace("xfaiss:", "x", 1)

    def training_size(self, entries: int) -> int:
        """The size of the sample that trains one of them; the others are its copies."""
        return self.shards[0].training_size(entries)

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    @property
    def memory(self) -> int:
        """The bytes of all of them."""
        return sum(shard.memory for shard in self.shards)

    def expected_memory(self, entries: int) -> int:
        """How many bytes all of them take with so many entries, about."""
        return len(self.shards) * self.shards[0].expected_memory(-(-entries // len(self.shards)))

    @property
    def needs_keys(self) -> bool:
        """Whether they rank by the stored keys."""
        return self.shards[0].needs_keys

    def attach_keys(self, keys: NDArray[Any]) -> None:
        """Let all of them rank by these keys, (entries, dimension); the id of an entry is its row."""
        for shard in self.shards:
            shard.attach_keys(keys)

    @property
    def mergeable(self) -> bool:
        """Whether parts of them can be built one by one."""
        return self.shards[0].mergeable

    @property
    def can_stay_on_disk(self) -> bool:
        """Whether their lists may lie on the disk."""
        return self.shards[0].can_stay_on_disk

    def clear(self) -> None:
        """Delete all entries, and nothing that was learned."""
        for number, shard in enumerate(self.shards):
            self._origins[number] = None
            shard.clear()

    def part(self) -> ShardsIndex:
        """See `SearchIndex.part`."""
        part = ShardsIndex(self.dimension, self.metric, self.recipe, **self.options)
        part.shards = [shard.part() for shard in self.shards]
        return part

    def merge(self, parts: Sequence[Path]) -> None:
        """See `SearchIndex.merge`; each shard takes over the entries of its like."""
        for number, shard in enumerate(self.shards):
            self._origins[number] = None
            shard.merge([part / _name(number) for part in parts])

    def merge_on_disk(self, parts: Sequence[Path], folder: Path) -> None:
        """Merge saved parts shard by shard into lists that lie in that folder, and save the index there."""
        for number, shard in enumerate(self.shards):
            place = folder / _name(number)
            shard.merge_on_disk([part / _name(number) for part in parts], place)
            self._origins[number] = _Origin.of(place)
        self.save(folder)

    def _train(self, sample: Tensor) -> None:
        first = self.shards[0]
        learns = first.training_size(len(sample)) > 0
        first._train(sample)
        if learns and len(self.shards) > 1:
            with TemporaryDirectory() as folder:
                first.save(Path(folder))
                self.shards[1:] = [type(first).load(Path(folder), writable=True) for _ in self.shards[1:]]

    def _add(self, keys: Tensor, ids: Tensor) -> None:
        for number, rows in self._owners(ids):
            self._origins[number] = None
            self.shards[number]._add(keys[rows.to(keys.device)], ids[rows])

    def _remove(self, ids: Tensor) -> None:
        for number, rows in self._owners(ids):
            if self.shards[number].remove(ids[rows]):
                self._origins[number] = None

    def _owners(self, ids: Tensor) -> list[tuple[int, Tensor]]:
        """The shards that ids, (n,), fall to, each with the positions of its ids."""
        owners = ids % len(self.shards)
        rows = [(owners == number).nonzero().squeeze(1) for number in range(len(self.shards))]
        return [(number, mine) for number, mine in enumerate(rows) if len(mine)]

    @staticmethod
    def _options_of_a_shard(options: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Those of all, but as many candidates in total as one index would rank."""
        factor = options.get("refine_factor")
        return dict(options) if factor is None else {**options, "refine_factor": -(-factor // count)}

    def _search(self, queries: Tensor, k: int, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        filled = [number for number, shard in enumerate(self.shards) if len(shard)]
        ask = partial(self._search_shard, queries, k, self._options_of_a_shard(options, len(self.shards)))
        threads = faiss.omp_get_max_threads()
        workers = min(threads, len(filled))
        # Many searches on a core each wait less than one after the other on all cores: OpenMP starts no threads.
        found = _pool(workers, threads // workers).map(ask, filled) if workers > 1 else map(ask, filled)
        distances, ids = (torch.cat(columns, dim=1) for columns in zip(*found, strict=True))
        ids, order = ids.sort(dim=1)  # of equally near ones those with the lower ids
        distances, nearest = distances.gather(1, order).sort(dim=1, stable=True)
        return distances[:, :k], ids.gather(1, nearest[:, :k])

    def _search_shard(self, queries: Tensor, k: int, options: Mapping[str, Any], number: int) -> tuple[Tensor, Tensor]:
        shard = self.shards[number]
        try:
            distances, ids = shard._search(queries, min(k, len(shard)), options)
        except KnnSeqError as error:
            raise type(error)(f"The search in shard {number} of {len(self.shards)} failed: {error}") from error
        except Exception as error:
            where = self._origins[number]
            place = f" ({where.folder})" if where else ""
            raise KnnSeqError(
                f"The search in shard {number} of {len(self.shards)}{place} failed ({error}): "
                "see to its disk, or build the index again."
            ) from error
        ids = ids.to(queries.device)
        return distances.to(queries.device).masked_fill(ids < 0, torch.inf), ids

    def _save(self, path: Path) -> None:
        # A shard may be a link to a folder on another disk: its new files are to be on that disk, too.
        together = Path(os.path.realpath(path.parent))
        places = [together / _name(number) for number in range(len(self.shards))]
        finals = [Path(os.path.realpath(place)) for place in places]
        partials = [partial_of(final) for final in finals]
        try:
            for number, folder in enumerate(partials):
                shutil.rmtree(folder, ignore_errors=True)
                self._save_shard(number, folder)
            write_json(path, [read_json(folder / DESCRIPTION) for folder in partials])
            (path.parent / DESCRIPTION).unlink(missing_ok=True)  # from here on the old index is no longer complete
            for old in set(together.glob(_name("*"))).difference(places, partials):
                old.unlink() if old.is_symlink() else shutil.rmtree(old)
            for number, (folder, final) in enumerate(zip(partials, finals, strict=True)):
                if final.exists():
                    shutil.rmtree(final)
                sync_folder(folder)
                publish_folder(folder, final)
                self._origins[number] = _Origin.of(final)
        finally:
            for folder in partials:
                shutil.rmtree(folder, ignore_errors=True)

    def _save_shard(self, number: int, folder: Path) -> None:
        """Write a shard; one that is as it was opened keeps its files, lists that stay on the disk among them."""
        origin = self._origins[number]
        if origin is None or not origin.is_there():
            self.shards[number].save(folder)
            return
        folder.mkdir(parents=True)
        for file in origin.folder.iterdir():
            try:
                os.link(file, folder / file.name)
            except OSError:  # another disk, or one that has no links
                shutil.copy2(file, folder)

    def _load(self, path: Path) -> None:
        descriptions = read_json(path)
        if not isinstance(descriptions, list) or len(descriptions) != len(self.shards):
            raise DamagedFile(f"{path} does not describe {len(self.shards)} shards: build the index again.")
        for number, description in enumerate(descriptions):
            self._load_shard(number, path.with_name(_name(number)), description)

    def _load_shard(self, number: int, folder: Path, description: object) -> None:
        which = f"Shard {number} of {len(self.shards)}"
        final = Path(os.path.realpath(folder))
        if not final.is_dir():
            leads = f"{folder} leads to {final}, and that" if folder.is_symlink() else str(folder)
            raise NotFound(f"{which} is missing: {leads} is not there; bring it back, or build the index again.")
        shard_options = self._options_of_a_shard(self.options, len(self.shards))
        try:
            shard = type(self.shards[number]).load(final, writable=self.writable, **shard_options)
            found = read_json(final / DESCRIPTION)
        except KnnSeqError as error:
            raise type(error)(f"{which} cannot be opened: {error}") from error
        if found != description:
            raise DamagedFile(f"{which} is of another index: {final} is not the one that was saved; bring that back.")
        self.shards[number], self._origins[number] = shard, _Origin.of(final)


class _Origin(NamedTuple):
    """The files that a shard was read from, or written to."""

    folder: Path
    inode: int
    time: int

    @classmethod
    def of(cls, folder: Path) -> _Origin:
        status = (folder / DESCRIPTION).stat()
        return cls(folder, status.st_ino, status.st_mtime_ns)

    def is_there(self) -> bool:
        """Whether nothing else has taken their place."""
        return (self.folder / DESCRIPTION).exists() and _Origin.of(self.folder) == self


def _name(number: int | str) -> str:
    return f"shard-{number}"


def _parsed(recipe: str) -> tuple[int, str | None]:
    """How many shards, and of what, if the recipe says so."""
    parts = re.fullmatch(r"(\d{1,9})(?:x(.+))?", recipe)
    if parts is None or not 1 <= int(parts[1]) <= MAX_SHARDS:
        raise InvalidSetting(
            f"Shards are a number up to {MAX_SHARDS} and what they are, as '{EXAMPLE}', not '{recipe}'."
        )
    return int(parts[1]), parts[2]


def _kind(inner: str) -> tuple[str, str | None]:
    """The name of an index in the registry and its recipe: a faiss factory string, NAME, or NAME:RECIPE."""
    name, _, recipe = inner.partition(":")
    if name == "shards":
        raise InvalidSetting(f"Shards of shards help nobody: write one number, as in '{EXAMPLE}'.")
    named = recipe or ("," not in name and name in INDEXES.names())  # the names take a while to find
    return (name, recipe or None) if named else ("faiss", inner)


def _shard(
    cls: type[SearchIndex], dimension: int, metric: str, recipe: str | None, options: dict[str, Any]
) -> SearchIndex:
    """An empty index whose entries may have any ids."""
    index = cls(dimension, metric, recipe, **options)
    if isinstance(index, FaissIndex) and _numbers_itself(index):
        return cls(dimension, metric, f"IDMap,{index.recipe}", **options)
    return index


def _numbers_itself(index: FaissIndex) -> bool:
    named = any(isinstance(layer, faiss.IndexIDMap) for layer in layers(index.index))
    return inverted_lists(index.index) is None and not named


@cache
def _pool(workers: int, threads: int) -> ThreadPoolExecutor:
    """Threads for shards, each of which lets faiss use so many threads for a search."""
    return ThreadPoolExecutor(workers, "shard", initializer=lambda: faiss.omp_set_num_threads(threads))

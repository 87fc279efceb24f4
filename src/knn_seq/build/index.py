"""The third step: the search index over the keys.

The index is trained on a random sample, which is saved; then keys are added in parts, each of which is saved; then the
parts are merged.  Whenever the process is killed, what was saved is not done again.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knn_seq.errors import UserError
from knn_seq.index import INDEXES, SearchIndex
from knn_seq.index.base import CHUNK_BYTES, DESCRIPTION
from knn_seq.index.budget import INDEX_SHARE, memory_budget
from knn_seq.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.sizes import format_bytes
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.atomic import publish_folder, read_json, write_json

DEFAULT_INDEX = "default"
PART_ENTRIES = 2_000_000  # of a part at most: some tens of seconds of work
CHUNK_SHARE = 1 / 32  # of the budget: keys that are converted to float32 at a time
SAVING_PAYS = 10  # times the seconds that saving the whole index takes: as much work is not done twice after a kill
WORKING_SHARE = 0.25  # of the budget: a part while it is filled, or the sample that trains it


def store_index(
    folder: DatastoreFolder, settings: BuildSettings, quiet: bool, name: str = DEFAULT_INDEX
) -> dict[str, Any]:
    """Build an index of the keys under that name, or go on with it; returns what the manifest says of it."""
    return build_index(folder.keys, folder.index_folder(name), settings, origin(folder), quiet)


def origin(folder: DatastoreFolder) -> dict[str, Any]:
    """What the keys of a datastore depend on."""
    return {"model": folder.manifest.model.fingerprint, "corpus": folder.manifest.corpus.identity}


def build_index(
    keys: NDArray[Any],
    final: Path,
    settings: BuildSettings,
    origin: dict[str, Any],
    quiet: bool,
    label: str = "index",
) -> dict[str, Any]:
    """Build an index, or go on with it, and put it into the place of one that may be there.

    Args:
        keys: (entries, dimension).
        final: The index's folder.
        settings: Which index, its metric, and the memory that it may take.
        origin: What the keys depend on: what was begun for others is thrown away.
        quiet: Show no progress.
        label: What to call it meanwhile.

    Returns:
        What the manifest says of it.
    """
    budget = memory_budget(settings.memory)
    entries, dimension = keys.shape
    kind, recipe = index_kind(settings.index, entries, dimension, settings.metric, int(INDEX_SHARE * budget))
    return _IndexBuilder(keys, final, kind, recipe, settings, budget, origin, quiet, label).run()


def reindex(
    path: str | Path,
    index: str = "auto",
    name: str | None = None,
    metric: str | None = None,
    memory: str | int | None = None,
    make_default: bool = False,
    quiet: bool = False,
) -> str:
    """Build another index of a datastore's keys, beside those it has.

    Args:
        path: The datastore's folder.
        index: "auto", a faiss factory string, or NAME or NAME:RECIPE of another implementation.
        name: What the index is called; None: as its recipe.  One of the same name is replaced when the new one is
            finished.
        metric: "l2", "ip" or "cosine"; None: the one that the datastore was built with.
        memory: Bytes that building may take and the index have, such as "8GB"; None: half of what is free.
        make_default: Let translations use it from now on.
        quiet: Show no progress.

    Returns:
        The name.
    """
    folder = DatastoreFolder(path)
    if not folder.exists():
        folder.require_complete()
    with folder.lock():
        folder.require_complete()
        manifest = folder.manifest
        settings = BuildSettings(index=index, metric=metric or str(manifest.build["metric"]), memory=memory)
        if name is None:
            entries, dimension = folder.keys.shape
            allowed = int(INDEX_SHARE * memory_budget(memory))
            kind, recipe = index_kind(index, entries, dimension, settings.metric, allowed)
            name = recipe or kind
        manifest.indexes[name] = store_index(folder, settings, quiet, name)
        if make_default:
            manifest.default_index = name
        folder.save(manifest)
    return name


def index_kind(
    index: str, entries: int, dimension: int, metric: str = "l2", memory: int | None = None
) -> tuple[str, str | None]:
    """The name of an index in the registry and its recipe, from what a user writes in one word."""
    kind, _, recipe = index.partition(":")
    if index == "auto":
        kind = "faiss"
    elif not recipe and kind not in INDEXES.names():
        return "faiss", index
    return kind, recipe or INDEXES.get(kind).recipe_for(entries, dimension, metric, memory)


class _IndexBuilder:
    def __init__(
        self,
        keys: NDArray[Any],
        final: Path,
        kind: str,
        recipe: str | None,
        settings: BuildSettings,
        budget: int,
        origin: dict[str, Any],
        quiet: bool,
        label: str,
    ) -> None:
        self.keys, self.final = keys, final
        self.work = final.with_name(f".{final.name}.building")
        self.type, self.cls, self.budget, self.quiet = kind, INDEXES.get(kind), budget, quiet
        self.index: SearchIndex = self.cls(self.keys.shape[1], settings.metric, recipe)
        self.label = f"{label} {recipe or kind}"
        self.last_save, self.save_seconds = time.monotonic(), 0.0
        self.expected_bytes = self.index.expected_memory(len(self.keys))
        self.identity = {
            "type": kind,
            "recipe": recipe,
            "metric": settings.metric,
            "keys": list(self.keys.shape),
            **origin,
        }

    def run(self) -> dict[str, Any]:
        on_disk = self._has_to_stay_on_disk()
        self._begin()
        self._train()
        parts = self._add(on_disk)
        finished = self.work / "finished"
        shutil.rmtree(finished, ignore_errors=True)
        if on_disk:
            self.index.merge_on_disk(parts, finished)
        else:
            for part in parts:
                self.index.merge(self.cls.load(part, to_change=True))
            self.index.save(finished)
        self._publish(finished)
        return {"type": self.type, **self.index.describe()}

    def _has_to_stay_on_disk(self) -> bool:
        allowed = INDEX_SHARE * self.budget
        if self.expected_bytes <= allowed:
            return False
        if not self.index.can_stay_on_disk:
            raise UserError(
                f"An index '{self.index.recipe or self.type}' of {len(self.keys):,} keys takes about "
                f"{format_bytes(self.expected_bytes)}, and {format_bytes(int(allowed))} are allowed: allow more "
                "memory, choose 'auto', or a recipe with inverted lists and no fast-scan codes, which stays on disk."
            )
        return True

    def _begin(self) -> None:
        """Keep what a build of the same index has left, and nothing else."""
        mark, replaced = self.work / "identity.json", self.work / "replaced"
        if replaced.exists() and not self.final.exists():  # killed between two renames
            replaced.rename(self.final)
        if not (mark.exists() and read_json(mark) == self.identity):
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir(parents=True)
            write_json(mark, self.identity)

    def _train(self) -> None:
        trained = self.work / "trained"
        if (trained / DESCRIPTION).exists():
            self.index = self.cls.load(trained, to_change=True)
        elif self.index.training_size(len(self.keys)):
            self.index.train_on_sample(self.keys, memory=int(WORKING_SHARE * self.budget))
            self.index.save(trained)

    def _add(self, on_disk: bool) -> list[Path]:
        """Fill the index part by part; returns the saved parts that are to be merged, if there are."""
        entries, step = len(self.keys), self._part_size()
        spans = [(start, min(start + step, entries)) for start in range(0, entries, step)]
        parts = [self.work / f"part-{start}-{stop}" for start, stop in spans]
        saved = [(part / DESCRIPTION).exists() for part in parts]
        if any(saved) and not self.index.mergeable:  # each holds all that were before it
            last = max(i for i, there in enumerate(saved) if there)
            self.index = self.cls.load(parts[last], to_change=True)
            saved[: last + 1] = [True] * (last + 1)
        merged = self.index.mergeable and (on_disk or len(parts) > 1)
        already = sum(stop - start for (start, stop), there in zip(spans, saved, strict=True) if there)
        with Progress(self.label, entries, "keys", done=already, quiet=self.quiet) as progress:
            for i, (start, stop) in enumerate(spans):
                if saved[i]:
                    continue
                self._add_rows(start, stop, progress)
                if merged:
                    self.index.save(parts[i])
                    self.index.clear()
                elif i + 1 < len(parts) and self._worth_saving():
                    self._save_so_far(parts[i])
        return parts if merged else []

    def _add_rows(self, start: int, stop: int, progress: Progress) -> None:
        step = max(int(min(CHUNK_BYTES, CHUNK_SHARE * self.budget)) // (4 * self.keys.shape[1]), 1)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            self.index.add(self.keys[first:last], np.arange(first, last))
            progress.update(last - first)

    def _worth_saving(self) -> bool:
        """An index that is saved as a whole is saved the less often the longer that takes."""
        return time.monotonic() - self.last_save >= SAVING_PAYS * self.save_seconds

    def _save_so_far(self, part: Path) -> None:
        started = time.monotonic()
        before = [old for old in self.work.glob("part-*") if old != part]
        self.index.save(part)
        for old in before:
            shutil.rmtree(old)
        self.last_save = time.monotonic()
        self.save_seconds = self.last_save - started

    def _part_size(self) -> int:
        per_entry = max(self.expected_bytes / max(len(self.keys), 1), 1)
        return max(min(PART_ENTRIES, int(WORKING_SHARE * self.budget / per_entry)), 1)

    def _publish(self, finished: Path) -> None:
        if self.final.exists():
            self.final.rename(self.work / "replaced")
        publish_folder(finished, self.final)
        shutil.rmtree(self.work)

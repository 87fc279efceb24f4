"""The third step: the search index over the keys.

The index is trained once, on a random sample of all keys, and saved; then workers fill parts of it, each of which is
saved; then the parts are merged.  An index that cannot be merged is filled by this process and saved now and then.
Whenever a process is killed, what was saved is not done again.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

from knn_seq.build.engine import Engine, open_engine
from knn_seq.build.engine.local import LocalEngine
from knn_seq.build.parts import IndexPart, add_rows
from knn_seq.errors import InvalidSetting
from knn_seq.index import INDEXES, SearchIndex, delete_unused, discard_index
from knn_seq.index.base import CHUNK_BYTES, DESCRIPTION
from knn_seq.index.budget import INDEX_SHARE, WORKING_SHARE, memory_budget, part_entries
from knn_seq.runtime.progress import Progress
from knn_seq.runtime.sizes import format_bytes
from knn_seq.runtime.wording import count
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, IndexInfo, Segment
from knn_seq.storage.atomic import disk_errors, read_json
from knn_seq.storage.keys import StoredRows
from knn_seq.storage.manifest import LONGEST_NAME, is_file_name
from knn_seq.storage.replacement import Replacement

DEFAULT_INDEX = "default"
CHUNK_SHARE = 1 / 32  # of the budget: keys that are converted to float32 at a time
SAVING_PAYS = 10  # times the seconds that saving the complete index takes: as much work is not done twice after a kill


def store_index(
    folder: DatastoreFolder,
    settings: BuildSettings,
    name: str = DEFAULT_INDEX,
    engine: Engine | None = None,
    segment: Segment | None = None,
) -> IndexInfo:
    """Build an index of the keys of a segment under that name, or resume it.

    Args:
        folder: The datastore.
        settings: Which index.
        name: What it is called.
        engine: Who fills it; None: this process.
        segment: The first segment, or the one that will be; None: the first one.

    Returns:
        What the manifest is to say of it.  `delete_unused`, when that is saved, deletes the index that it replaces.
    """
    if not is_file_name(name):
        raise InvalidSetting(
            f"An index cannot be called {name!r}: leave out slashes, control characters and a leading dot, "
            f"and take at most {LONGEST_NAME} bytes."
        )
    known = folder.manifest.indexes.get(name)
    place = IndexPlace(folder.path, f"index/{name}", known.folder if known else None)
    segment = segment or folder.base
    rows = StoredRows(segment.keys_path.absolute())
    return IndexInfo.from_dict(build_index(rows, place, settings, origin(folder, segment), engine))


def origin(folder: DatastoreFolder, segment: Segment) -> dict[str, Any]:
    """What the keys of a segment of a datastore depend on."""
    manifest = folder.manifest
    return {"model": manifest.model.fingerprint, "corpus": manifest.corpus.identity, "segment": segment.path.name}


class IndexPlace(NamedTuple):
    """Where an index belongs."""

    store: Path
    name: str  # of its folder there, such as index/default
    in_use: str | None  # the folder there that it replaces


def build_index(
    rows: StoredRows,
    place: IndexPlace,
    settings: BuildSettings,
    origin: dict[str, Any],
    engine: Engine | None = None,
    label: str = "index",
) -> dict[str, Any]:
    """Build an index, or resume a build, beside the one in use.

    Args:
        rows: The keys, as every worker sees them.
        place: Where it belongs.
        settings: Which index, its metric, and the memory that it may take.
        origin: What the keys depend on: what was built for others is thrown away.
        engine: Who fills parts of it; None: this process.
        label: What to call it meanwhile.

    Returns:
        What the manifest is to say of it.
    """
    budget, engine = memory_budget(settings.memory_limit), engine or LocalEngine(settings)
    entries, dimension = rows.open().shape
    kind, recipe = index_kind(
        settings.index_recipe, entries, dimension, settings.distance_metric, int(INDEX_SHARE * budget)
    )
    return _IndexBuilder(rows, place, kind, recipe, settings, budget, origin, engine, label).run()


def add_index(path: str | Path, settings: BuildSettings, name: str | None = None, as_default: bool = False) -> str:
    """Build another index of a datastore's keys, beside those it has.

    Args:
        path: The datastore's folder.
        settings: Which index, of which metric, within which memory, by which engine.
        name: What the index is called; None: as its recipe.  One of the same name is replaced when the new one is
            finished.
        as_default: Let translations use it from now on.

    Returns:
        The name.
    """
    folder = DatastoreFolder(path)
    folder.require_complete()
    with disk_errors(folder.path), folder.lock():
        folder = DatastoreFolder(path)
        delete_unused(folder)
        manifest = folder.manifest
        if name is None:
            entries, dimension = folder.base.keys.shape
            allowed = int(INDEX_SHARE * memory_budget(settings.memory_limit))
            kind, recipe = index_kind(settings.index_recipe, entries, dimension, settings.distance_metric, allowed)
            name = kind if recipe is None or "/" in recipe else recipe  # an address cannot be the name of a folder
        with open_engine(settings) as opened:
            opened.start()
            manifest.indexes[name] = store_index(folder, settings, name, opened)
        if as_default:
            manifest.default_index = name
        folder.save(manifest)
        delete_unused(folder)
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
    return kind, INDEXES.get(kind).complete_recipe(recipe or None, entries, dimension, metric, memory)


class _IndexBuilder:
    def __init__(
        self,
        rows: StoredRows,
        place: IndexPlace,
        kind: str,
        recipe: str | None,
        settings: BuildSettings,
        budget: int,
        origin: dict[str, Any],
        engine: Engine,
        label: str,
    ) -> None:
        self.rows, self.keys, self.engine = rows, rows.open(), engine
        self.type, self.cls, self.budget = kind, INDEXES.get(kind), budget
        self.index: SearchIndex = self.cls(
            self.keys.shape[1], settings.distance_metric, recipe, **settings.index_options
        )
        self.label = f"{label} {recipe or kind}"
        self.chunk = max(int(min(CHUNK_BYTES, CHUNK_SHARE * budget)) // (4 * self.keys.shape[1]), 1)
        self.last_save, self.save_seconds = time.monotonic(), 0.0
        self.expected_bytes = self.index.expected_memory(len(self.keys))
        identity = {
            "type": kind,
            "recipe": recipe,
            "metric": settings.distance_metric,
            "options": dict(self.index.options),
            "keys": list(self.keys.shape),
            **origin,
        }
        self.replacement = Replacement(place.store, place.name, identity, place.in_use)
        self.work = self.replacement.work
        self.trained = self.work / "trained"

    def run(self) -> dict[str, Any]:
        on_disk, new = self._has_to_stay_on_disk(), self.replacement.new
        self.replacement.prepare(discard_index)
        if not self.replacement.complete:
            self._build(new, on_disk)
        described = {name: value for name, value in read_json(new / DESCRIPTION).items() if name != "bytes"}
        return {"type": self.type, **described, "folder": self.replacement.publish()}

    def _build(self, new: Path, on_disk: bool) -> None:
        self._train()
        spans = self._spans()
        shutil.rmtree(new, ignore_errors=True)
        if self.index.mergeable and (on_disk or len(spans) > 1):
            parts = self._fill_parts(spans)
            if on_disk:
                self.index.merge_on_disk(parts, new)
            else:
                self.index.merge(parts)
                self.index.save(new)
        else:
            self._fill(spans)
            self.index.save(new)

    def _has_to_stay_on_disk(self) -> bool:
        allowed = INDEX_SHARE * self.budget
        if self.expected_bytes <= allowed:
            return False
        if not self.index.can_stay_on_disk:
            raise InvalidSetting(
                f"An index '{self.index.recipe or self.type}' of {count(len(self.keys), 'key')} takes about "
                f"{format_bytes(self.expected_bytes)}, and {format_bytes(int(allowed))} are allowed: allow more "
                "(--memory-limit), choose 'auto', or a recipe with inverted lists and no fast-scan codes, which "
                "stays on disk."
            )
        return True

    def _train(self) -> None:
        if (self.trained / DESCRIPTION).exists():
            self.index = self.cls.load(self.trained, writable=True)
        elif self.index.training_size(len(self.keys)):
            self.index.train_on_sample(self.keys, memory=int(WORKING_SHARE * self.budget))
            self.index.save(self.trained)

    def _spans(self) -> list[range]:
        """The entries of each part, whoever fills it: they depend on the keys and the memory alone."""
        entries = len(self.keys)
        step = part_entries(entries, self.expected_bytes / max(entries, 1), self.budget)
        return [range(start, min(start + step, entries)) for start in range(0, entries, step)]

    def _path(self, span: range) -> Path:
        return self.work / f"part-{span.start}-{span.stop}"

    def _fill_parts(self, spans: list[range]) -> list[Path]:
        """Let the engine fill parts that are to be merged; returns their folders."""
        if not (self.trained / DESCRIPTION).exists():
            self.index.save(self.trained)
        self.index.clear()  # what only searching needs
        parts = [IndexPart(self.type, self.trained, self._path(span), self.rows, span, self.chunk) for span in spans]
        done = sum(part.done() for part in parts)
        with Progress(self.label, len(self.keys), "key", done) as progress:
            self.engine.run([part for part in parts if not part.finished], progress)
        return [part.folder for part in parts]

    def _fill(self, spans: list[range]) -> None:
        """Fill one index with all keys; it is saved now and then, since it cannot be merged."""
        saved = [i for i, span in enumerate(spans) if (self._path(span) / DESCRIPTION).exists()]
        first = 0
        if saved:
            self.index, first = self.cls.load(self._path(spans[saved[-1]]), writable=True), saved[-1] + 1
        done = spans[first - 1].stop if first else 0
        with Progress(self.label, len(self.keys), "key", done) as progress:
            for span in spans[first:]:
                add_rows(self.index, self.keys, span, self.chunk, progress.update)
                if span is not spans[-1] and self._worth_saving():
                    self._save_so_far(self._path(span))

    def _worth_saving(self) -> bool:
        """The longer saving takes, the less often it is done."""
        return time.monotonic() - self.last_save >= SAVING_PAYS * self.save_seconds

    def _save_so_far(self, part: Path) -> None:
        started = time.monotonic()
        before = [old for old in self.work.glob("part-*") if old != part]
        self.index.save(part)
        for old in before:
            shutil.rmtree(old)
        self.last_save = time.monotonic()
        self.save_seconds = self.last_save - started

"""Folders of a datastore that are replaced: the next one is made beside the one in use, and the manifest switches.

The manifest names the folder in use, such as index/default.  The next one is made in a hidden folder, gets a name of
its own, such as index/default.2, and is in use when a manifest that names it has taken the place of the one before.
Then the first is deleted.  Whenever a process is killed, the manifest names complete folders; what it does not name is
deleted by the next writer.  A reader keeps what it has opened: the system deletes files when the last one closes them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from knn_seq.errors import DamagedFile
from knn_seq.storage.atomic import disk_errors, publish_folder, read_json, sync_folder, unsynced, write_json

IDENTITY = "identity.json"  # what a folder was made from; written last
PUBLISHED = "published.json"  # the name that was given to the folder
SEGMENTS = "segments"  # the folder of the datastore's segments
SUBSET_PARTS = ("codes", "vectors", "sentences")  # folders of their own, beside index/NAME
_VERSION = re.compile(r"\.[1-9][0-9]{0,8}")  # behind a name, from the second folder on


class Replacement:
    """A folder that is made to take the place of the one in use, or to be the first; for the holder of the lock.

    Args:
        store: The datastore's folder.
        name: What the folder is called, from there: "index/default" or "codes".
        identity: What it is made from: what a killed process has made from something else is not used.
        in_use: The folder that the manifest names now; None: there is none.
        final: What it is called when it is published; None: the name, with a number behind if it is taken.
    """

    def __init__(
        self, store: Path, name: str, identity: Mapping[str, Any], in_use: str | None, final: str | None = None
    ) -> None:
        self.store, self.name, self.in_use, self.final = store.absolute(), name, in_use, final
        self.identity = dict(identity)
        self.work = work_folder(self.store, name)  # all that is needed to resume
        self.new = self.work / "new"  # what is published

    def prepare(self, discard: Callable[[Path], None] = shutil.rmtree) -> None:
        """Keep what was made from the same before, and nothing else.

        Args:
            discard: Deletes a folder.
        """
        if _mark(self.work / IDENTITY) == self.identity:
            return
        if self.work.exists():
            discard_work(self.work, discard)
        with disk_errors(self.work):
            self.work.mkdir(parents=True)
        write_json(self.work / IDENTITY, self.identity)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do but to publish it."""
        return (self.new / IDENTITY).exists()

    @property
    def needed(self) -> bool:
        """Whether the folder in use was made from something else, or is not there."""
        return self.in_use is None or _mark(self.store / self.in_use / IDENTITY) != self.identity

    def publish(self, resumable: bool = True) -> str:
        """Give the new folder its name, and return it for the manifest; it is in use when that is saved.

        Args:
            resumable: Let nobody take the folder for complete before all of it is on the disk.
        """
        folder = self.final or self._free_name()
        with nullcontext() if resumable else unsynced():
            if not self.complete:
                if resumable:
                    sync_folder(self.new)
                write_json(self.new / IDENTITY, self.identity)
            write_json(self.work / PUBLISHED, {"folder": folder})
        if not resumable:
            sync_folder(self.new)
        publish_folder(self.new, self.store / folder)
        return folder

    def _free_name(self) -> str:
        version = (self.in_use or "").removeprefix(self.name)
        number = 0 if self.in_use is None else int(version[1:]) if _VERSION.fullmatch(version) else 1
        while True:  # another one may be called NAME.2
            number += 1
            folder = self.name if number == 1 else f"{self.name}.{number}"
            if not (self.store / folder).exists():
                return folder


def delete_unnamed(store: Path, named: Collection[str], discard: Callable[[Path], None] = shutil.rmtree) -> None:
    """Delete the folders that the manifest does not name; for the holder of the lock.

    What a killed process has published, and could not enter into the manifest any more, stays and is resumed.

    Args:
        store: The datastore's folder.
        named: Those that the manifest names.
        discard: Deletes a folder.
    """
    folders = {str(path.relative_to(store)): path for path in _replaceable_folders(store)}
    for work in [path for parent in ("", "index/", f"{SEGMENTS}/") for path in store.glob(f"{parent}.*.building")]:
        published = _mark(work / PUBLISHED).get("folder")
        if published in named or not (work / IDENTITY).exists():
            discard_work(work, discard)
        elif published in folders:
            folders.pop(published).rename(work / "new")
            (work / PUBLISHED).unlink()
    for name, path in folders.items():
        if name not in named:
            discard_work(path, discard)


def work_folder(store: Path, name: str) -> Path:
    """Where the next folder of that name is made."""
    path = store / name
    return path.with_name(f".{path.name}.building")


def discard_work(folder: Path, discard: Callable[[Path], None]) -> None:
    """Delete a folder, so that one that is deleted by half is not taken for complete."""
    (folder / IDENTITY).unlink(missing_ok=True)
    discard(folder)


def is_part_folder(folder: str, part: str) -> bool:
    """Whether a manifest may name that folder for that part of subset search."""
    return folder == part or (folder.startswith(part) and bool(_VERSION.fullmatch(folder.removeprefix(part))))


def _mark(path: Path) -> dict[str, Any]:
    """What a file says of a folder; nothing if it is not there or damaged."""
    try:
        data = read_json(path)
    except (OSError, DamagedFile):
        return {}
    return data if isinstance(data, dict) else {}


def _replaceable_folders(store: Path) -> Iterator[Path]:
    for parent in ("index", SEGMENTS):
        yield from (path for path in store.glob(f"{parent}/*") if path.is_dir() and not path.name.startswith("."))
    for part in SUBSET_PARTS:
        yield from (path for path in store.glob(f"{part}*") if path.is_dir() and is_part_folder(path.name, part))

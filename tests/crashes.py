"""The states that a folder is in before each file operation of an action: what a power cut or SIGKILL would leave."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")
STEP = int(os.environ.get("KNN_SEQ_CRASH_STEP", "0"))
KINDS = {"opened", "half write", "half pwrite", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}  # that change files
MOST_ENDS = 4
CALLS = ("write", "pwrite", "fsync", "posix_fallocate")  # those without an event


class Operation(NamedTuple):
    """A file operation inside of the folder that is watched."""

    kind: str
    path: str


class Crashes(NamedTuple):
    """What became of the crashes that were tried."""

    operations: list[Operation]  # all of an undisturbed run
    tried: int  # states that differ: two operations may find the same files
    wrong: dict[str, str]  # what was wrong, by the operation's number and name


def forked(action: Callable[[], Any]) -> tuple[int, Any]:
    """Run an action in a fork of this process; returns its exit code, and what it returned or why it failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer, code = action(), 0
        except BaseException:
            answer, code = traceback.format_exc(), 1
        with os.fdopen(writing, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, json.loads(text) if text else None


def watched(
    action: Callable[[], object], folder: Path, copied: Collection[int] = (), copies: Path | None = None
) -> list[Operation]:
    """Run an action and return its operations in a folder.

    A file that is opened to be written counts twice, before and after it was created or emptied; so does a write, which
    is done by half the second time.  Only for a process that ends anyway: what is patched stays so.

    Args:
        action: What is done.
        folder: Where operations are counted.
        copied: The numbers of operations before which the folder is copied.
        copies: Where to, a folder called after each number.
    """
    seen: list[Operation] = []
    inside, lock, state = f"{folder}{os.sep}", threading.RLock(), threading.local()

    @contextmanager
    def unwatched() -> Iterator[None]:
        with lock:
            state.paused = True
            yield
            state.paused = False

    def count(kind: str, path: str, change: Callable[[Path], object] | None = None) -> None:
        """Count an operation; `change` is done to a file of the copy, if there is one."""
        if not f"{path}{os.sep}".startswith(inside):
            return
        with unwatched():
            if len(seen) in copied and copies is not None:
                copy = copies / str(len(seen))
                copy.mkdir(parents=True)
                if folder.exists():
                    shutil.copytree(folder, copy, dirs_exist_ok=True)
                if change is not None:
                    change(copy / os.path.relpath(path, folder))
            seen.append(Operation(kind, path))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or getattr(state, "paused", False):
            return
        path = arguments[0]
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        path = os.fsdecode(path)
        if event in ("os.remove", "os.rmdir") and not os.path.isabs(path) and arguments[1] != -1:  # shutil.rmtree
            path = os.path.join(os.readlink(f"/proc/self/fd/{arguments[1]}"), path)
        if event != "open":
            count(event, path)
            return
        mode, flags = arguments[1] or "", arguments[2]
        if flags & WRITING or set(mode) & set("wax+"):
            count("open", path)
            kept = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_EXCL)
            count("opened", path, lambda copy: os.close(os.open(copy, kept, 0o666)))

    def patch(name: str) -> None:
        original = getattr(os, name)

        def call(handle: int, *arguments: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{handle}")
            if getattr(state, "paused", False) or not path.startswith(inside):
                return original(handle, *arguments)
            count(name, path)
            if name in ("write", "pwrite"):
                half = bytes(memoryview(arguments[0]).cast("B"))
                half = half[: len(half) // 2]
                place = arguments[1] if name == "pwrite" else os.lseek(handle, 0, os.SEEK_CUR)
                count(f"half {name}", path, lambda copy: _write_at(copy, place, half))
            return original(handle, *arguments)

        setattr(os, name, call)

    for name in CALLS:
        patch(name)
    sys.addaudithook(hook)
    action()
    return seen


def crash_everywhere(
    action: Callable[[Path], object],
    check: Callable[[Path], object],
    snapshot: Callable[[Path], Any],
    start: Path,
    work: Path,
    choose: Callable[[list[Operation]], Sequence[int]],
) -> Crashes:
    """Crash an action at many of its file operations; afterwards what it left is checked, and the action repeated.

    Args:
        action: What is done to a folder, always in the same way.
        check: Raises an error if the folder cannot be used as it could before the action.
        snapshot: What is to be the same, in JSON, after a crash and a repetition as after an undisturbed action.
        start: The folder before the action.
        work: Where to make copies of it.
        choose: The numbers of those operations at which to crash, out of all of an undisturbed run.
    """
    folder, copies = work / "store", work / "copies"

    def fresh() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if start.exists():
            shutil.copytree(start, folder)

    def run(numbers: Sequence[int] = ()) -> list[Operation]:
        fresh()
        code, answer = forked(lambda: [*map(tuple, watched(lambda: action(folder), folder, numbers, copies))])
        assert code == 0, answer
        return [Operation(*each) for each in answer]

    def repeated() -> Any:
        check(folder)
        action(folder)
        return snapshot(folder)

    operations = run()
    code, wanted = forked(lambda: snapshot(folder))
    assert code == 0, wanted
    operations = run(choose(operations))
    wrong, tried = {}, set()
    for copy in sorted(copies.iterdir(), key=lambda path: int(path.name)):
        shutil.rmtree(folder, ignore_errors=True)
        copy.rename(folder)
        state = _hash(folder)
        if state in tried:
            continue
        tried.add(state)
        operation = operations[int(copy.name)]
        name = f"{copy.name} {operation.kind} {os.path.relpath(operation.path, folder)}"
        code, answer = forked(repeated)
        if code:
            wrong[name] = str(answer)
        elif answer != wanted:
            wrong[name] = f"not the same: {_difference(answer, wanted)}"
    return Crashes(operations, len(tried), wrong)


def chosen(operations: list[Operation]) -> list[int]:
    """Some out of the first and the last operation of each kind, and those around the last switch of the manifest."""
    numbers = range(len(operations))
    if STEP:
        return list(numbers[::STEP])
    changing = [number for number in numbers if operations[number].kind in KINDS]
    renamed = [n for n in changing if operations[n].kind == "os.rename" and "datastore.json" in operations[n].path]
    ends: set[int] = set()
    for kind in KINDS:
        of_kind = [number for number in changing if operations[number].kind == kind]
        ends.update(of_kind[:1] + of_kind[-1:])
    switch = changing.index(renamed[-1])
    around = changing[switch : switch + 4]
    return sorted({*sorted(ends)[:: -(-len(ends) // MOST_ENDS)], *around})


def _write_at(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def _hash(folder: Path) -> str:
    digest = hashlib.blake2b()
    for path in sorted(folder.rglob("*")):
        digest.update(os.fsencode(path))
        digest.update(hashlib.blake2b(path.read_bytes()).digest() if path.is_file() else b"folder")
    return digest.hexdigest()


def _difference(got: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = sorted(name for name in {*got, *wanted} if got.get(name) != wanted.get(name))
    return "; ".join(f"{name}: {str(got.get(name))[:80]} instead of {str(wanted.get(name))[:80]}" for name in names)

"""Kills, locks and full disks, in real processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from knn_seq.errors import KnnSeqError
from knn_seq.storage import FolderLock, Ragged, TextFile, open_keys

WRITE = """
import os, sys
from pathlib import Path
import numpy as np
from knn_seq.storage import KeyWriter, RaggedWriter, TextWriter
from knn_seq.storage.atomic import read_json, write_json

def write(folder, sentences, checkpoint_every):
    progress_path = folder / "text.json"
    progress = read_json(progress_path) if progress_path.exists() else {"line": 0, "values": None, "text": None}
    with RaggedWriter(folder / "values.h5", {"": np.int32}, progress["values"]) as values, \\
            TextWriter(folder / "corpus.h5", progress["text"]) as text:
        for line in range(progress["line"], sentences):
            values.extend((np.arange(line % 11) + line, [line % 11]))
            text.extend_texts([(f"frase {line}", f"sentence {line}" * (line % 3))])
            if line % checkpoint_every == 0 or line == sentences - 1:
                write_json(progress_path, {"line": line + 1, "values": values.checkpoint(), "text": text.checkpoint()})
        values.finish()
        text.finish()
    writer, progress = KeyWriter.open_or_create(folder / "keys.h5", (2 * sentences, 16), "float16", {"model": "a"})
    if not writer.finished:
        for row in range(progress["row"] if progress else 0, 2 * sentences, 2):
            writer.write(row, np.add.outer(np.arange(row, row + 2), np.arange(16)))
            if row % checkpoint_every == 0:
                writer.checkpoint({"row": row + 2})
    writer.finish()
"""


def assert_written(folder: Path, sentences: int) -> None:
    assert sorted(os.listdir(folder)) == ["corpus.h5", "keys.h5", "text.json", "values.h5"]
    values, texts = Ragged.open(folder / "values.h5"), TextFile(folder / "corpus.h5")
    assert [sequence.tolist() for sequence in values] == [
        [line + item for item in range(line % 11)] for line in range(sentences)
    ]
    assert list(texts) == [(f"frase {line}", f"sentence {line}" * (line % 3)) for line in range(sentences)]
    np.testing.assert_array_equal(open_keys(folder / "keys.h5"), np.add.outer(np.arange(2 * sentences), np.arange(16)))


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


WRITE_ONCE = WRITE + 'print("ready", flush=True); write(Path(sys.argv[1]), 500, 20)'


def test_killed_from_outside_again_and_again(tmp_path):
    moments = random.Random(1)
    for attempt in range(5):
        process = run_python(WRITE_ONCE, tmp_path)
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        if attempt < 4:
            time.sleep(moments.uniform(0, 0.1))
            process.kill()
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors
    assert process.returncode == 0
    assert_written(tmp_path, 500)


DIE_EVERYWHERE = (
    WRITE
    + """
import signal

def die_at(moment):
    calls = 0

    def wrap(name):
        function = getattr(os, name)

        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == moment:
                if name in ("write", "pwrite"):
                    handle, data, *place = arguments
                    function(handle, data[: len(data) // 2], *place)
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "fsync":
                return None  # what a process wrote outlives its kill without; only time is saved
            return function(*arguments, **options)

        setattr(os, name, call)

    for name in ("write", "pwrite", "fsync", "replace", "unlink", "ftruncate", "posix_fallocate"):
        if hasattr(os, name):
            wrap(name)

def in_child(folder, moment):
    child = os.fork()
    if child == 0:
        die_at(moment)
        try:
            write(folder, 4, 3)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

moment, codes = 0, [-signal.SIGKILL]
while codes[0] != 0:
    moment += 1
    folder = Path(sys.argv[1]) / str(moment)
    folder.mkdir()
    codes = [in_child(folder, moment)]
    if moment % 4 == 0:
        codes.append(in_child(folder, 1 + moment % 17))  # it resumes after the first kill, and is killed again
    codes.append(in_child(folder, 0))
    assert set(codes[:-1]) <= {0, -signal.SIGKILL} and codes[-1] == 0, (moment, codes)
"""
)


def test_killed_at_every_system_call(tmp_path):
    _, errors = run_python(DIE_EVERYWHERE, tmp_path).communicate()
    assert errors == ""
    folders = list(tmp_path.iterdir())
    assert len(folders) > 50
    for folder in folders:
        assert_written(folder, 4)


HOLDER = """
import sys, time
from pathlib import Path
from knn_seq.errors import KnnSeqError
from knn_seq.storage import FolderLock
try:
    with FolderLock(Path(sys.argv[1])):
        print("locked", flush=True)
        sys.stdin.readline()
except KnnSeqError as error:
    print(error, flush=True)
"""


def test_two_processes_refuse_each_other(tmp_path):
    folder = tmp_path / "store"
    holder = run_python(HOLDER, folder)
    assert holder.stdout.readline() == "locked\n"
    other, _ = run_python(HOLDER, folder).communicate("\n")
    assert other == (
        f"Another process (pid {holder.pid}) is writing into {folder}: wait until it ends, or choose another folder.\n"
    )
    with pytest.raises(KnnSeqError, match=f"pid {holder.pid}"), FolderLock(folder):
        pass
    holder.communicate("\n")
    assert run_python(HOLDER, folder).communicate("\n")[0] == "locked\n"


FORKING_HOLDER = """
import os, sys, time
from pathlib import Path
from knn_seq.storage import FolderLock
lock = FolderLock(Path(sys.argv[1])).__enter__()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    os._exit(0)
time.sleep(60)
"""


def test_a_killed_process_releases_its_lock_though_its_child_lives(tmp_path):
    holder = run_python(FORKING_HOLDER, tmp_path)
    child = int(holder.stdout.readline())
    with pytest.raises(KnnSeqError, match=f"pid {holder.pid}"), FolderLock(tmp_path):
        pass
    holder.kill()
    holder.wait()
    os.kill(child, 0)  # it is alive
    with FolderLock(tmp_path):
        pass
    holder.communicate("\n")


def test_a_lock_can_be_taken_again(tmp_path):
    for _ in range(2):
        with FolderLock(tmp_path), pytest.raises(KnnSeqError, match=f"pid {os.getpid()}"), FolderLock(tmp_path):
            pass


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(KnnSeqError, match="cannot be written to"), FolderLock(path):
            pass


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from knn_seq.errors import DiskFull
from knn_seq.storage import KeyWriter, RaggedWriter
from knn_seq.storage.atomic import write_json

folder = Path(sys.argv[1])
with RaggedWriter(folder / "values.h5", {"": np.int32}) as writer:
    writer.extend((np.arange(1000), [1000]))
    write_json(folder / "text.json", writer.checkpoint())
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    def grow():
        for _ in range(100):
            writer.extend((np.arange(10_000), [10_000]))

    def grow_and_checkpoint():
        writer.extend((np.arange(100_000), [100_000]))
        writer.checkpoint()

    def make_keys():
        KeyWriter.open_or_create(folder / "keys.h5", (10_000, 512), "float16")

    def make_json():
        write_json(folder / "text.json", {"long": "x" * 200_000})

    for action in (grow, grow_and_checkpoint, make_keys, make_json):
        try:
            action()
            print("no error")
        except DiskFull as error:
            print(error)
"""


def test_a_full_disk_is_reported_and_leaves_what_was_finished(tmp_path):
    output, errors = run_python(LIMITED, tmp_path).communicate()
    assert errors == ""
    sentences = output.splitlines()
    assert len(sentences) == 4
    for sentence, name in zip(
        sentences, ("values.h5.items", "values.h5.items", "keys.h5.partial", "text.json"), strict=True
    ):
        assert sentence.startswith(f"The disk is full (File too large) at {tmp_path / name}")
        assert sentence.endswith(
            "what was finished is on the disk; free some space and run the same command again to resume."
        )
    lengths = json.loads((tmp_path / "text.json").read_text())
    assert lengths == {"": [1, 1000]}
    output, errors = run_python(RESUMED, tmp_path).communicate()
    assert (output, errors) == ("done\n", "")
    assert [sequence.tolist() for sequence in Ragged.open(tmp_path / "values.h5")] == [list(range(1000)), [5]]
    assert open_keys(tmp_path / "keys.h5").shape == (10_000, 512)


RESUMED = """
import sys
from pathlib import Path
import numpy as np
from knn_seq.storage import KeyWriter, RaggedWriter
from knn_seq.storage.atomic import read_json

folder = Path(sys.argv[1])
with RaggedWriter(folder / "values.h5", {"": np.int32}, read_json(folder / "text.json")) as writer:
    writer.extend(([5], [1]))
    writer.finish()
KeyWriter.open_or_create(folder / "keys.h5", (10_000, 512), "float16")[0].finish()
print("done")
"""

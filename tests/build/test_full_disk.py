"""Commands on a file system that is full after any number of bytes.

Each says so in one sentence, loses nothing, and succeeds when there is space again.  Three numbers of bytes are tried;
KNN_SEQ_DISK_STEP=4096 tries every block.  Where the user may not mount a file system, a limit of the size of files
takes its place.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import killed_build
import numpy as np
import pytest
import torch
from crashes import forked
from tiny_models import number_line

import knn_seq.train.fit
import knn_seq.train.skip
from knn_seq.cli.main import main
from knn_seq.datastore import Datastore
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings

BLOCK = 4096
STEP = int(os.environ.get("KNN_SEQ_DISK_STEP", "0"))
PLENTY = 64 << 20
COMMANDS = {
    "build with bm25": ("build", "STORE", "--model", "MODEL", "--corpus", "CORPUS", "--sentence-search", "bm25"),
    "build with encoder": ("build", "STORE", "--model", "MODEL", "--corpus", "CORPUS", "--sentence-search", "encoder"),
    "index": ("index", "STORE", "--index-recipe", "IVF4,SQ8", "--name", "default"),
    "index on disk": ("index", "STORE", "--index-recipe", "IVF4,Flat", "--name", "default", "--memory-limit", "60kB"),
    "usearch": ("index", "STORE", "--index-recipe", "usearch", "--name", "default"),
    "bm25": ("index", "STORE", "--sentence-search", "bm25", "--codes", "PQ16x4"),
    "tfidf": ("index", "STORE", "--sentence-search", "tfidf"),
    "encoder": ("index", "STORE", "--sentence-search", "encoder", "--codes", "PQ16x4"),
    "tune": ("tune", "STORE", "--dev", "DEV", "--confirm", "1", "--largest-k", "2", "--beam-size", "1"),
    "train": ("train", "STORE", "--sentences", "4", "-k", "4", "--as-default"),
    "prune": ("prune", "START", "--output", "STORE", "--method", "merge", "--keep", "0.9"),
}
OPTIONS = {
    "build": ("--index-recipe", "Flat", "--codes", "PQ16x4", "--workers", "1"),
    "tune": ("--max-length", "4"),
}


def mounted(folder: Path, size: int = PLENTY) -> bool:
    """Mount a file system of so many bytes in memory; whether it was possible."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return shutil.which("mount") is not None and subprocess.run(mount, capture_output=True, check=False).returncode == 0


def resize(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


def used(folder: Path) -> int:
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def command_line(command: tuple[str, ...], largest_file: int | None = None) -> tuple[int, str]:
    """Run a command in this process, which ends afterwards; returns its exit code and what it said of errors."""
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    code = main(list(command))
    sys.stderr.flush()
    os.write(writing, b"\n")
    return code, os.read(reading, 1 << 16).decode()


def run(command: tuple[str, ...], disk: Path, start: Path | None, mount: bool, report: Path) -> None:
    """Fill the disk at many places of a command, in forks of a process that has started no threads."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    knn_seq.train.fit.EPOCHS = 2
    knn_seq.train.skip.EPOCHS = 2
    store, wrong, full = disk / "store", [], 0

    def begin(size: int = PLENTY) -> None:
        if mount:
            resize(disk, PLENTY)
        shutil.rmtree(store, ignore_errors=True)
        if start is not None:
            shutil.copytree(start, store)
        if mount:
            resize(disk, max(size, BLOCK))  # 0 is no limit

    def state() -> object:
        if start is None:
            return None
        opened = Datastore(store)
        return opened.open_index().search(opened.keys[:3], 2).ids.tolist()

    begin()
    before = used(disk) if mount else 0
    needed = (_most_used if mount else _largest_file)(lambda: main([*command]), disk)  # here, so that forks have all
    gc.freeze()
    most = max((needed - before - 1) // BLOCK, 0)  # blocks that are just too few
    numbers = range(0, most + 1, max(STEP // BLOCK, 1)) if STEP else sorted({0, most // 2, most})
    for size in [before + BLOCK * number for number in numbers]:
        begin(size)
        code, answer = forked(lambda size=size: command_line(command, None if mount else size))
        exit_code, said = answer if not code else (None, str(answer))
        sentence = [line for line in said.splitlines() if line.startswith("knn-seq: ")]
        if exit_code not in (0, 2) or "Traceback" in said:
            wrong.append([size, f"exit {code}, {exit_code}: {said[-2000:]}"])
        elif exit_code == 2:
            full += 1
            if len(sentence) != 1 or "The disk is full" not in sentence[0]:
                wrong.append([size, said[-2000:]])
        if mount:
            resize(disk, PLENTY)

        def again() -> Any:
            state()
            return command_line(command)

        code, answer = forked(again)
        if code or answer[0]:
            wrong.append([size, f"something was lost, or it does not succeed with space: {answer}"])
    report.write_text(json.dumps([full, needed - before, wrong]))


def _most_used(action: Callable[[], int], disk: Path) -> int:
    """The most bytes that are used at a file operation or at the end."""
    sizes: list[int] = []
    sys.addaudithook(lambda event, _: sizes.append(used(disk)) if event in ("open", "os.rename", "os.remove") else None)
    assert action() == 0
    return max([*sizes, used(disk)])


def _largest_file(action: Callable[[], int], disk: Path) -> int:
    """The size of the largest file that is new at the end."""
    before = {path: path.stat().st_ino for path in disk.rglob("*")}
    assert action() == 0
    new = [path for path in disk.rglob("*") if path.is_file() and before.get(path) != path.stat().st_ino]
    return max(path.stat().st_size for path in new)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "train.tsv"
    generator = np.random.default_rng(8)
    path.write_text("".join(number_line(generator) for _ in range(50)))
    return path


@pytest.fixture(scope="module")
def start(corpus, save_model):
    model = load_model(ModelSettings(save_model()))
    plain = {"index_recipe": "Flat", "calibration_sentences": 0, "workers": 1}
    return Datastore.build(corpus.parent / "start", model, corpus, **plain).path


@pytest.fixture
def disk(tmp_path):
    """A folder, on a file system of its own if that is permitted, and whether it is."""
    folder = tmp_path / "disk"
    mount = mounted(folder)
    yield folder, mount
    if mount:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def fill(corpus, start, save_model, tmp_path):
    """Try a command with too little space; says what failed."""

    def filled(name: str, folder: Path, mount: bool) -> None:
        report, dev = tmp_path / "report.json", tmp_path / "dev.tsv"
        dev.write_text("5 6 7\t8 9\n")
        store = folder / "store"
        places = {"STORE": store, "MODEL": save_model(), "CORPUS": corpus, "DEV": dev, "START": start}
        words = (*COMMANDS[name], *OPTIONS.get(COMMANDS[name][0], ()), "-q")
        command = tuple(str(places.get(word, word)) for word in words)
        begun = None if COMMANDS[name][0] in ("build", "prune") else start
        assert killed_build._run(run, command, folder, begun, mount, report) == 0
        full, needed, wrong = json.loads(report.read_text())
        print(f"{name}: {len(wrong)} failed, {full} were too small; {needed} bytes are enough")
        assert full
        assert not wrong, "\n".join(f"{size} bytes: {why}" for size, why in wrong)

    return filled


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_full_after_any_number_of_bytes(name, disk, fill):
    fill(name, *disk)


@pytest.mark.parametrize("name", ["build with bm25", "train"])
def test_files_that_may_not_become_larger(name, tmp_path, fill):
    (tmp_path / "files").mkdir()
    fill(name, tmp_path / "files", mount=False)

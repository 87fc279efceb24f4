"""Builds a datastore in a process of its own and kills it with SIGKILL at a chosen place."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.forkserver
import os
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
import transformers.models.marian.modeling_marian
import transformers.models.marian.tokenization_marian  # noqa: F401

import knn_seq.build.index
import knn_seq.build.tokens as tokens
import knn_seq.index.budget
import knn_seq.index.faiss
import knn_seq.models.transformers
import knn_seq.prune.evidence
import knn_seq.prune.known
import knn_seq.prune.merge
import knn_seq.prune.write
import knn_seq.translator
from knn_seq.datastore import Datastore
from knn_seq.prune import prune_datastore
from knn_seq.settings import BuildSettings

# A server that has imported everything forks each build: a new interpreter for each would take seconds.
FORKS = multiprocessing.get_context("forkserver")


@functools.cache
def start_server() -> None:
    """The server finds this module only through the environment."""
    FORKS.set_forkserver_preload(["killed_build"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), before)))
    multiprocessing.forkserver.ensure_running()
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


def build(store: Path, model: str, corpus: Path, place: str = "", count: int = 0, **settings: object) -> int:
    """Build; at the `count`-th call of the function `place` ("module/Class:name") the process is killed.

    Returns:
        The exit code, -SIGKILL if it was killed.
    """
    return _run(_build, store, model, corpus, place, count, settings)


def add_index(store: Path, recipe: str, memory_limit: str, part_entries: int, place: str = "", count: int = 0) -> int:
    """Build an index called "new", in parts of so many entries, and be killed as in `build`."""
    return _run(_reindex, store, recipe, memory_limit, part_entries, place, count)


def prune(store: Path, output: Path, method: str, place: str = "", count: int = 0, **options: float) -> int:
    """Prune a datastore, and be killed as in `build`."""
    return _run(_prune, store, output, method, place, count, options)


def _run(target: Callable[..., None], *arguments: object) -> int:
    start_server()
    process = FORKS.Process(target=target, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _build(store: Path, model: str, corpus: Path, place: str, count: int, settings: dict[str, object]) -> None:
    torch.set_num_threads(1)
    tokens.UNITS_PER_CHUNK = 50
    _kill_when(place, count)
    common = {"workers": 1, "checkpoint_seconds": 0, "batch_tokens": 200, "index_recipe": "Flat"}
    Datastore.build(store, model, corpus, **common, **settings)


def _reindex(store: Path, recipe: str, memory_limit: str, part_entries: int, place: str, count: int) -> None:
    torch.set_num_threads(1)
    knn_seq.index.budget.PART_ENTRIES = part_entries
    _kill_when(place, count)
    knn_seq.build.index.add_index(store, BuildSettings(index_recipe=recipe, memory_limit=memory_limit), "new")


def _prune(store: Path, output: Path, method: str, place: str, count: int, options: dict[str, float]) -> None:
    torch.set_num_threads(1)
    # Many small steps, with a checkpoint after each.
    knn_seq.prune.evidence.SCORE_TOKENS = 200
    knn_seq.prune.evidence.SEARCHED = knn_seq.prune.write.COPIED = 100
    _kill_when(place, count)
    source = Datastore(store)
    prune_datastore(source, output, source.load_model(), method, checkpoint_seconds=0, **options)


def _kill_when(place: str, count: int) -> None:
    if place:
        path, _, name = place.rpartition(":")
        module, _, owner = path.partition("/")
        target = import_module(module)
        _kill_at(getattr(target, owner) if owner else target, name, count)


def _kill_at(owner: object, name: str, count: int) -> None:
    original, calls = getattr(owner, name), 0

    def wrapper(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, name, wrapper)

"""Commands that change a datastore, ended at many of their file operations.

Afterwards it has the old or the new generation, and the same command again succeeds and leaves nothing behind.  Some
operations are tried; KNN_SEQ_CRASH_STEP=1 tries them all.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

import faiss
import killed_build
import numpy as np
import pytest
import torch
from crashes import chosen, crash_everywhere
from tiny_models import number_line

import knn_seq.live.fold
from knn_seq.corpus import SentencePair
from knn_seq.datastore import Datastore
from knn_seq.live.fold import maintain
from knn_seq.live.writing import writing
from knn_seq.models import Model, load_model
from knn_seq.settings import ModelSettings
from knn_seq.translator import Translator

SCENARIOS = ("add", "add with encoder", "update", "delete", "fold", "compact", "compact with encoder", "merge")
BUILD = {"workers": 1, "checkpoint_seconds": 0, "batch_tokens": 400, "index_recipe": "Flat", "calibration_sentences": 0}
ADDED = [SentencePair("5 6 7", "50 51 52", "", id="x"), SentencePair("8 9", "53 54", "", id="y")]
CORRECTED = [SentencePair("5 6 7", "40 41 42", "", id="x"), SentencePair("11 12", "43 44", "", id="z")]


def prepare(scenario: str, store: Datastore, model: Model) -> None:
    """What is done before the scenario."""
    if not scenario.startswith("add"):
        store.add(ADDED, model)
    if scenario.startswith(("compact", "merge")):
        store.delete([store.pairs[3].id, "y"])


def act(scenario: str, path: Path, model: Model) -> None:
    """Do what the scenario is about."""
    if scenario == "merge":
        Datastore.merge(path.parent / "start", path.parent / "other", path)
        return
    store = Datastore(path)
    if scenario.startswith("add"):
        if "x" not in listed(store):  # a crash came after it
            store.add(ADDED, model, checkpoint_seconds=0)
        store.delete(["nothing"])  # every writer deletes what others have left
    elif scenario == "update":
        store.update(CORRECTED, model, checkpoint_seconds=0)
    elif scenario == "delete":
        store.delete(["x"], source=store.texts[5][0])
    elif scenario == "fold":
        knn_seq.live.fold.MOST_SMALL, knn_seq.live.fold.SMALL_ENTRIES = 1, 8
        if "z" not in listed(store):
            store.add([SentencePair("11 12", "43 44 45 46 47", "", id="z")], model)
        with writing(path) as folder:
            maintain(folder)
    else:
        store.compact()


def listed(store: Datastore) -> dict[str, list[str]]:
    return {str(pair.id): [pair.source, pair.target, str(pair.corpus)] for pair in store.live_pairs()}


def state(path: Path, model: Model) -> dict[str, object]:
    """What is in a datastore, and how it translates."""
    store = Datastore(path)
    options = {"k": 4, "weight": 0.9, "temperature": 10.0, "beam_size": 1, "combiner": "fixed", "subset_size": 50}
    translated = {}
    for retriever in ("full", "subset") if store.manifest.subset else ("full",):
        translated[retriever] = str(
            Translator(store, model, max_length=4, retriever=retriever, **options).translate("5 6 7")
        )
    return {"pairs": listed(store), **translated}


def leftovers(path: Path) -> list[str]:
    """Files and folders that the manifest does not name."""
    store = Datastore(path)
    named = {path / folder for folder in store.manifest.folders()}
    if store.manifest.deleted:
        named.add(path / "deletions" / store.manifest.deleted.file)
    found = {*path.glob("segments/*"), *path.glob("index/.*"), *path.glob("deletions/*")}
    return sorted(str(each.relative_to(path)) for each in found if each not in named)


def run(scenario: str, folder: Path, model_path: str, corpus: Path, report: Path) -> None:
    """All of a scenario, in a process that has started no threads."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    logging.disable()
    gc.freeze()
    model, start, after = load_model(ModelSettings(model_path)), folder / "start", folder / "after"
    search = "encoder" if "encoder" in scenario else "bm25"
    store = Datastore.build(start, model, corpus, sentence_search=search, codes="Flat", **BUILD)
    prepare(scenario, store, model)
    if scenario == "merge":
        shutil.copytree(start, folder / "other")
        before: list[dict[str, object]] = []
    else:
        shutil.copytree(start, after)
        before = [state(start, model)]
    act(scenario, after, model)
    allowed = [*before, state(after, model)]

    def check(path: Path) -> None:
        if scenario != "merge":
            assert state(path, model) in allowed

    crashes = crash_everywhere(
        lambda path: act(scenario, path, model),
        check,
        lambda path: {**state(path, model), "leftovers": leftovers(path)},
        folder / "nothing" if scenario == "merge" else start,
        folder,
        chosen,
    )
    report.write_text(json.dumps(crashes))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_crash_at_any_file_operation(scenario, save_model, tmp_path):
    generator = np.random.default_rng(8)
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=in_memory) as made:
        folder = Path(made)
        corpus, report = folder / "train.tsv", folder / "report.json"
        corpus.write_text("".join(number_line(generator) for _ in range(30)))
        assert killed_build._run(run, scenario, folder, save_model(), corpus, report) == 0
        operations, tried, wrong = json.loads(report.read_text())
    print(f"{scenario}: {len(wrong)} of {tried} states after a crash failed, out of {len(operations)} operations")
    assert tried > 3
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())

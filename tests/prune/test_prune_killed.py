"""Pruning that was killed with SIGKILL and started again ends in the same datastore."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from killed_build import build, prune
from tiny_models import number_line

from knn_seq.datastore import Datastore
from knn_seq.storage.flat import open_flat

PLACES = [
    ("known", "knn_seq.prune.columns/ColumnWriter:advance", 20),
    ("merge", "knn_seq.storage.keys/KeyWriter:checkpoint", 5),
    ("known", "knn_seq.storage.keys/KeyWriter:finish", 2),
    ("merge", "knn_seq.prune.write:_write_keys", 1),
    ("known", "knn_seq.storage.keys/KeyWriter:finish", 4),
    ("merge", "knn_seq.build.pipeline:store_index", 1),
    ("merge", "knn_seq.build.subset:store_codes", 1),
]
KEEP = {"known": 0.6, "merge": 0.9}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, save_model):
    folder = tmp_path_factory.mktemp("undisturbed")
    generator = np.random.default_rng(8)
    (folder / "train.tsv").write_text("".join(number_line(generator) for _ in range(150)))
    options = {"sentence_search": "encoder", "codes": "PQ16x4", "calibration_sentences": 0}
    assert build(folder / "store", save_model(), folder / "train.tsv", **options) == 0
    for method, keep in KEEP.items():
        assert prune(folder / "store", folder / method, method, keep=keep) == 0
    return folder


@pytest.mark.parametrize(("method", "place", "count"), PLACES, ids=lambda value: str(value).rsplit(":")[-1])
def test_it_resumes(method, place, count, undisturbed, tmp_path):
    source, output, keep = undisturbed / "store", tmp_path / "small", KEEP[method]
    assert prune(source, output, method, place, count, keep=keep) == -signal.SIGKILL
    assert prune(source, output, method, keep=keep) == 0
    assert_same(Datastore(output), Datastore(undisturbed / method))


def test_what_was_done_is_not_done_again(undisturbed, tmp_path):
    source, output, kills = undisturbed / "store", tmp_path / "small", 0
    while prune(source, output, "known", "knn_seq.models.network/NetworkModel:score", 6, keep=KEEP["known"]) != 0:
        kills += 1
        assert kills < 50, "it does not get on"
    assert kills > 1
    assert_same(Datastore(output), Datastore(undisturbed / "known"))


def assert_same(got: Datastore, wanted: Datastore) -> None:
    names = ("values", "targets", "entries", "sources", "corpus", "pairs", "keys")
    for name in (*(f"segments/1/{each}.h5" for each in names), "codes/codes.h5"):
        ours, theirs = open_flat(got.path / name), open_flat(wanted.path / name)
        assert ours.keys() == theirs.keys()
        for dataset in ours:
            np.testing.assert_array_equal(ours[dataset], theirs[dataset], err_msg=f"{name} {dataset}")
    assert got.manifest.to_dict() == wanted.manifest.to_dict()
    assert {path.name for path in got.path.rglob("*")} == {path.name for path in wanted.path.rglob("*")}

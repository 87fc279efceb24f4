"""A build killed with SIGKILL and started again ends in the same datastore as one that nobody disturbed."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from killed_build import build
from tiny_models import number_line

from knn_seq.datastore import Datastore
from knn_seq.storage.flat import open_flat

PLACES = [
    ("knn_seq.build.tokens:_tokenize_chunk", 3),
    ("knn_seq.build.text:_append", 1),
    ("knn_seq.storage.ragged/RaggedWriter:finish", 2),
    ("knn_seq.models.network/NetworkModel:keys", 2),  # the first call only finds the dimension
    ("knn_seq.models.network/NetworkModel:keys", 9),
    ("knn_seq.storage.keys/KeyWriter:write", 100),
    ("knn_seq.storage.keys/KeyWriter:finish", 1),
    ("knn_seq.build.pipeline:store_index", 1),
    ("knn_seq.index.faiss/FaissIndex:save", 1),
    ("knn_seq.build.pipeline:examples_for", 1),
    ("knn_seq.build.pipeline:train", 1),
    ("knn_seq.build.pipeline:add_combiner", 1),
    *(("knn_seq.storage.atomic:_fsync", count) for count in (1, 3, 8, 13, 21, 34)),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, save_model):
    folder = tmp_path_factory.mktemp("undisturbed")
    generator = np.random.default_rng(8)
    corpus = folder / "train.tsv"
    corpus.write_text("".join(number_line(generator) if i % 40 else "only one side\n" for i in range(300)))
    assert build(folder / "store", save_model(), corpus) == 0
    return save_model(), corpus, Datastore(folder / "store")


@pytest.mark.parametrize(("place", "count"), PLACES, ids=lambda value: str(value).rsplit(":")[-1])
def test_a_killed_build_resumes(place, count, undisturbed, tmp_path):
    model, corpus, wanted = undisturbed
    assert build(tmp_path / "store", model, corpus, place, count) == -signal.SIGKILL
    with pytest.raises(Exception, match=r"not complete|not a datastore"):
        Datastore(tmp_path / "store")
    assert build(tmp_path / "store", model, corpus) == 0
    assert_same(Datastore(tmp_path / "store"), wanted)


def test_a_build_that_is_killed_again_and_again_ends(undisturbed, tmp_path):
    model, corpus, wanted = undisturbed
    kills = 0
    # The first call finds the dimension. 4 batches wait for the writer, so the 8th call comes after the first batch's
    # checkpoint, however slow the disk is.
    while build(tmp_path / "store", model, corpus, "knn_seq.models.network/NetworkModel:keys", 8) != 0:
        kills += 1
        assert kills < 50, "the build does not get on"
    assert kills > 2
    assert_same(Datastore(tmp_path / "store"), wanted)


def assert_same(got: Datastore, wanted: Datastore) -> None:
    for name in (f"segments/1/{each}.h5" for each in ("values", "sources", "corpus", "pairs", "keys")):
        ours, theirs = open_flat(got.path / name), open_flat(wanted.path / name)
        assert ours.keys() == theirs.keys()
        for dataset in ours:
            np.testing.assert_array_equal(ours[dataset], theirs[dataset], err_msg=f"{name} {dataset}")
    index = "index/default/index.faiss"
    assert (got.path / index).read_bytes() == (wanted.path / index).read_bytes()
    assert got.manifest.to_dict() == wanted.manifest.to_dict()
    assert got.manifest.counts.rejected == {"missing column": 8}
    assert {path.name for path in got.path.rglob("*")} == {path.name for path in wanted.path.rglob("*")}

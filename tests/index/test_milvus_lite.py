"""Milvus Lite, and what needs no server at all."""

from __future__ import annotations

import json
import subprocess
import sys

import grpc
import numpy as np
import pymilvus
import pytest
import torch
from milvus_server import free_address
from test_search_index import exact, vectors

from knn_seq.errors import IndexUnavailable, KnnSeqError
from knn_seq.index import discard_index
from knn_seq.index.milvus import MilvusIndex
from knn_seq.index.milvus_library.recipe import MilvusRecipe, build_parameters, search_parameters
from knn_seq.index.milvus_library.server import MilvusServer
from knn_seq.settings import DISTANCE_METRICS, BuildSettings

pytest.importorskip("milvus_lite", reason="NOT TESTED: pip install milvus-lite")
DIMENSION = 24


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    """A file of Milvus Lite that all tests share."""
    return tmp_path_factory.mktemp("milvus") / "memory.db"


def recall(found, expected):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), expected.tolist(), strict=True)])


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
@pytest.mark.parametrize("kind", ["FLAT", "HNSW", "IVF_FLAT"])
def test_it_equals_exact_search_also_for_what_is_added_later(lite, metric, kind):
    keys, queries = vectors(900), vectors(30, seed=1)
    index = MilvusIndex.build(keys[:800], f"{kind}@{lite}", metric, nprobe=1000, ef_search=1000)
    for size in (800, 900):
        distances, ids = index.search(queries, 10)
        expected, rows = exact(keys[:size], queries, 10, metric)
        np.testing.assert_allclose(distances, expected, atol=1e-4)
        assert recall(ids, rows) > 0.99
        index.add(keys[800:], np.arange(800, 900)) if size == 800 else None
    assert len(index) == 900


def test_few_probes_find_less(lite):
    keys, queries = vectors(2000), vectors(50, seed=1)
    index = MilvusIndex.build(keys, f"IVF_SQ8(nlist=64)@{lite}")
    _, rows = exact(keys, queries, 10, "l2")
    few, many = (recall(index.search(queries, 10, {"nprobe": lists}).ids, rows) for lists in (1, 64))
    assert few < 0.6 < 0.9 < many


def test_removed_entries_are_gone_at_once(lite, tmp_path):
    keys = vectors(300)
    index = MilvusIndex.build(keys, f"HNSW@{lite}")
    assert index.remove(np.array([5, 7, 7, 999, -1])) == 2
    assert len(index) == 298
    assert not set(index.search(keys[[5, 7]], 300).ids.flatten().tolist()) & {5, 7}
    assert (index.search(keys[:2], 400).ids >= 0).sum() == 2 * 298
    index.add(keys[[7, 5]], np.array([5, 7]))
    assert index.search(keys[[5, 7]], 1).ids.tolist() == [[7], [5]]
    index.save(tmp_path)
    assert len(MilvusIndex.load(tmp_path)) == 300


def test_an_id_is_given_once(lite):
    index = MilvusIndex.build(vectors(20), f"FLAT@{lite}")
    for ids in ([20, 20], [21, 3]):
        with pytest.raises(KnnSeqError, match="id is given twice"):
            index.add(vectors(2), np.array(ids))
    assert len(index) == 20


def test_a_saved_index_is_found_by_another_process(tmp_path):
    program = f"""
import numpy as np, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from test_search_index import vectors
from knn_seq.index.milvus import MilvusIndex
folder = Path({str(tmp_path / "index")!r})
if sys.argv[1] == "build":
    MilvusIndex.build(vectors(300), "HNSW@memory.db").save(folder)
else:
    print(MilvusIndex.load(folder).search(vectors(9), 1).ids.flatten().tolist())
"""
    (tmp_path / "sub").mkdir()
    outputs = []
    for place, action in ((tmp_path, "build"), (tmp_path / "sub", "load")):  # the address does not depend on the place
        done = subprocess.run([sys.executable, "-c", program, action], cwd=place, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        outputs.append(done.stdout)
    assert json.loads(outputs[1]) == list(range(9))


def test_what_is_saved_is_small_and_plain(lite, tmp_path):
    index = MilvusIndex.build(vectors(50), f"IVF_FLAT(nlist=4)@{lite}")
    index.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"index.milvus", "index.json"}
    facts = json.loads((tmp_path / "index.milvus").read_text())
    assert (facts["address"], facts["entries"], facts["parameters"]) == (str(lite), 50, {"nlist": 4})
    assert MilvusIndex.load(tmp_path).describe() == index.describe()


def test_a_connection_that_was_closed_for_its_pings_is_opened_again(lite, monkeypatch):
    """Milvus Lite does so after minutes, so the first try is made to fail here."""
    opened, tries = pymilvus.MilvusClient, []

    def closed_once(**named):
        tries.append(named)
        if len(tries) == 1:
            raise pymilvus.MilvusException(2, "Fail connecting to server") from grpc.RpcError("Too many pings")
        return opened(**named)

    monkeypatch.setattr(pymilvus, "MilvusClient", closed_once)
    assert MilvusServer(str(lite)).lite
    assert len(tries) == 2


def test_a_collection_that_does_not_fit_is_refused(lite, tmp_path):
    index = MilvusIndex.build(vectors(50), f"FLAT@{lite}")
    index.save(tmp_path)
    index.remove(np.array([3]))
    with pytest.raises(KnnSeqError, match="has 49 entries instead of 50: build the index again"):
        MilvusIndex.load(tmp_path).search(vectors(1), 1)
    MilvusIndex.delete_external(tmp_path)
    with pytest.raises(KnnSeqError, match="is not there any more"):
        MilvusIndex.load(tmp_path).search(vectors(1), 1)


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"address": "a.db"}'])
def test_a_file_of_something_else_is_refused(lite, tmp_path, text):
    MilvusIndex.build(vectors(20), f"FLAT@{lite}").save(tmp_path)
    (tmp_path / "index.milvus").write_text(text)
    description = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps({**description, "bytes": len(text)}))
    with pytest.raises(KnnSeqError, match=r"index\.milvus does not describe an index of Milvus"):
        MilvusIndex.load(tmp_path)


def test_a_build_that_resumes_has_no_entry_twice(lite, tmp_path):
    keys = vectors(300)
    index = MilvusIndex(DIMENSION, "l2", f"FLAT@{lite}")
    index.train(keys[:1])
    index.save(tmp_path / "trained")
    index.add(keys[:200])
    index.save(tmp_path / "part")
    index.add(keys[200:250])  # and here it was killed
    for folder, first in (("part", 200), ("trained", 0)):
        again = MilvusIndex.load(tmp_path / folder, writable=True)
        assert len(again) == first
        again.add(keys[first:], np.arange(first, 300))
        again.save(tmp_path / "finished")
        assert MilvusIndex.load(tmp_path / "finished").search(keys, 2).ids[:, 0].tolist() == list(range(300))
        found = again.search(keys[:3], 400).ids
        assert sorted(found[0][found[0] >= 0].tolist()) == list(range(300))


def test_what_is_discarded_leaves_nothing_on_the_server_but_what_is_in_use(lite, tmp_path, capsys):
    old, new = (MilvusIndex.build(vectors(20), f"FLAT@{lite}") for _ in range(2))
    old.save(tmp_path / "work" / "replaced")
    new.save(tmp_path / "work" / "trained")
    new.save(tmp_path / "final")
    discard_index(tmp_path / "work", in_use_by=[tmp_path / "final"])
    assert not (tmp_path / "work").exists()
    assert new.search(vectors(1), 1).ids.tolist() == [[0]]
    with pytest.raises(KnnSeqError):
        old.search(vectors(1), 1)
    discard_index(tmp_path / "nothing")
    assert capsys.readouterr().err == ""


def test_a_folder_is_discarded_also_if_its_server_does_not_answer(tmp_path, caplog, lite):
    index = MilvusIndex.build(vectors(20), f"FLAT@{lite}")
    index.save(tmp_path / "index")
    for name in ("index.milvus", "index.json"):
        file = tmp_path / "index" / name
        file.write_text(file.read_text().replace(str(lite), free_address()))
    discard_index(tmp_path / "index")
    assert not (tmp_path / "index").exists()
    warning = caplog.messages[-1]
    assert warning.startswith("The collection knn_seq_")
    assert "stays where it is" in warning


@pytest.mark.parametrize("kind", ["IVF_PQ", "SCANN", "DISKANN"])
def test_kinds_that_lite_does_not_build_are_refused(lite, kind):
    with pytest.raises(KnnSeqError, match=f"Milvus Lite builds no {kind}: choose from FLAT, IVF_FLAT"):
        MilvusIndex.build(vectors(20), f"{kind}@{lite}")


def test_a_missing_server_is_one_sentence():
    address = free_address()
    with pytest.raises(IndexUnavailable, match=f"Milvus at {address} does not answer"):
        MilvusIndex.build(vectors(20), f"FLAT@{address}")


def test_a_missing_folder_is_one_sentence(tmp_path):
    with pytest.raises(KnnSeqError, match="there is no folder"):
        MilvusIndex.build(vectors(20), f"FLAT@{tmp_path}/missing/memory.db")


def test_the_environment_may_say_the_address(lite, tmp_path, monkeypatch):
    monkeypatch.delenv("KNN_SEQ_MILVUS_ADDRESS", raising=False)
    with pytest.raises(KnnSeqError, match="The recipe 'FLAT' has no address"):
        MilvusIndex.build(vectors(20), "FLAT")
    monkeypatch.setenv("KNN_SEQ_MILVUS_ADDRESS", str(lite))
    MilvusIndex.build(vectors(20), "FLAT").save(tmp_path)
    monkeypatch.delenv("KNN_SEQ_MILVUS_ADDRESS")
    assert MilvusIndex.load(tmp_path).search(vectors(1), 1).ids.tolist() == [[0]]
    monkeypatch.setenv("KNN_SEQ_MILVUS_ADDRESS", free_address())  # the server has moved
    with pytest.raises(IndexUnavailable):
        MilvusIndex.load(tmp_path).search(vectors(1), 1)


@pytest.mark.parametrize("address", ["http://root:secret@host:19530", "https://token@host", "root:secret@host:19530"])
def test_an_address_with_a_password_is_refused_and_not_repeated(address):
    for make in (
        lambda: MilvusIndex(DIMENSION, "l2", f"FLAT@{address}"),
        lambda: (
            BuildSettings(index_recipe=f"milvus:FLAT@{address}")
            if "//" in address
            else MilvusRecipe.parse("@" + address)
        ),
    ):
        with pytest.raises(KnnSeqError) as error:
            make()
        assert "secret" not in str(error.value)
        assert "token@" not in str(error.value)


def test_recipes():
    assert MilvusRecipe.parse("ivf_pq(nlist=1024, m=64)@http://h:1/db") == (
        "IVF_PQ",
        {"nlist": 1024, "m": 64},
        "http://h:1/db",
    )
    assert MilvusRecipe.parse("@http://h:1") == ("HNSW", {}, "http://h:1")
    assert MilvusRecipe.parse("SCANN(with_raw_data=true,x=0.5,y=abc)")[1] == {
        "with_raw_data": True,
        "x": 0.5,
        "y": "abc",
    }


@pytest.mark.parametrize("recipe", ["IVF_PQ(nlist)", "IVF_PQ(=3)", "IVF PQ", "FLAT(", "FLAT@here", "1024", "FLAT@"])
def test_a_bad_recipe_is_one_sentence(recipe):
    with pytest.raises(KnnSeqError, match="is no "):
        MilvusIndex(DIMENSION, recipe=recipe)


def test_parameters_that_are_not_given_fit_the_size():
    assert build_parameters("IVF_PQ", {}, 1_000_000, 256) == {"nlist": 2048, "m": 64, "nbits": 8}
    assert build_parameters("IVF_PQ", {"m": 8}, 100, 30) == {"nlist": 8, "m": 8, "nbits": 8}
    assert build_parameters("IVF_PQ", {}, 100, 30)["m"] == 6
    assert build_parameters("GPU_IVF_FLAT", {}, 10**12, 8) == {"nlist": 65536}
    assert build_parameters("HNSW", {"M": 8}, 100, 30) == {"M": 8, "efConstruction": 200}
    assert build_parameters("FLAT", {}, 100, 30) == {}


def test_search_parameters_keep_to_what_servers_allow():
    assert search_parameters("IVF_PQ", {"nlist": 16}, nprobe=32, ef_search=64, k=8) == {"nprobe": 16}
    assert search_parameters("HNSW", {"M": 16}, nprobe=32, ef_search=64, k=100) == {"ef": 100}
    assert search_parameters("DISKANN", {}, nprobe=32, ef_search=64, k=8) == {"search_list": 64}
    assert search_parameters("FLAT", {}, nprobe=32, ef_search=64, k=8) == {}


@pytest.mark.parametrize("option", ["nprobe", "ef_search"])
def test_options_must_be_numbers_from_one_on(option):
    with pytest.raises(KnnSeqError, match=f"takes as its option '{option}' a whole number from 1 on"):
        MilvusIndex(DIMENSION, **{option: 0})


def test_a_wrong_dimension_is_refused(lite, tmp_path):
    index = MilvusIndex.build(vectors(20), f"FLAT@{lite}")
    with pytest.raises(KnnSeqError, match=f"vectors of dimension {DIMENSION}"):
        index.search(torch.zeros(1, DIMENSION + 1), 1)
    index.save(tmp_path)
    description = tmp_path / "index.json"
    description.write_text(description.read_text().replace(f'"dimension": {DIMENSION}', '"dimension": 16'))
    with pytest.raises(KnnSeqError, match=f"is of dimension {DIMENSION}, not 16"):
        MilvusIndex.load(tmp_path)


def test_many_queries_are_asked_in_parts(lite, monkeypatch):
    monkeypatch.setattr("knn_seq.index.milvus.MOST_QUERIES", 7)
    monkeypatch.setattr("knn_seq.index.milvus.MESSAGE_BYTES", 4 * DIMENSION * 11)
    keys = vectors(60)
    index = MilvusIndex.build(keys, f"FLAT@{lite}")
    assert index.search(keys, 1).ids.flatten().tolist() == list(range(60))


def test_the_keys_are_in_this_process_only_with_lite(lite):
    assert MilvusIndex(DIMENSION, "l2", "FLAT@http://h:1").expected_memory(100) == 0
    assert MilvusIndex(DIMENSION, "l2", f"FLAT@{lite}").expected_memory(100) == 100 * DIMENSION * 4


def test_without_the_library_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(KnnSeqError, match=r"pip install knn-seq\[milvus\]"):
        MilvusIndex.build(vectors(3), "FLAT@http://127.0.0.1:1")

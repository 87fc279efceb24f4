"""A real Milvus server: what it finds, and what happens when it goes away."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from milvus_server import USER, free_address, start_or_skip
from test_search_index import exact, vectors

import knn_seq.decoding.outage as outage
import knn_seq.index.milvus_library.server as asking
from knn_seq import Translator
from knn_seq.build.index import add_index
from knn_seq.datastore import Datastore
from knn_seq.errors import IndexUnavailable, KnnSeqError
from knn_seq.index.milvus import MilvusIndex
from knn_seq.settings import DISTANCE_METRICS, BuildSettings

DIMENSION = 32
SOURCES = ["5 6 7", "9 10 11 12", "20 21", "33 34 35 36 37"]


@pytest.fixture(scope="module")
def server(tmp_path_factory, request):
    """A server that runs while these tests do."""
    unpacked = request.config.cache.mkdir("milvus-2.3.5")
    running = start_or_skip(tmp_path_factory.mktemp("milvus-server"), unpacked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KNN_SEQ_MILVUS_TOKEN", USER)
        patch.setenv("KNN_SEQ_MILVUS_ADDRESS", running.address)
        yield running
    running.stop()


@pytest.fixture(scope="module")
def clusters():
    """Keys in 40 clusters, (2000, 32) float16, and 40 queries."""
    random = np.random.default_rng(5)
    centres = 2 * random.standard_normal((40, DIMENSION))
    points = centres[random.integers(40, size=2040)] + random.standard_normal((2040, DIMENSION))
    return points[:2000].astype(np.float16), points[2000:].astype(np.float32)


@pytest.fixture(scope="module")
def indexes(server, clusters):
    """Several at once: the server takes seconds for each, most of which it waits."""
    wanted = [("FLAT", "l2"), ("FLAT", "ip"), ("FLAT", "cosine"), ("HNSW", "l2"), ("IVF_PQ(nlist=16,m=16)", "l2")]

    def build(recipe, metric):
        index = MilvusIndex.build(clusters[0], recipe, metric)
        index.search(clusters[1][:1], 1)
        return index

    with ThreadPoolExecutor(len(wanted)) as threads:
        return dict(zip(wanted, threads.map(lambda each: build(*each), wanted), strict=True))


@pytest.fixture(scope="module")
def store(server, tmp_path_factory, save_model, number_corpus):
    """A datastore whose default index is on the server, and that has another of its own."""
    path = tmp_path_factory.mktemp("milvus-store") / "store"
    options = {"index_recipe": f"milvus:FLAT@{server.address}", "calibration_sentences": 0, "workers": 1}
    Datastore.build(path, save_model(), number_corpus, **options)
    add_index(path, BuildSettings(index_recipe="Flat"), "own")
    return path


def recall(index, keys, queries, k=16, **options):
    _, expected = exact(keys, queries, k, "l2")
    found = index.search(queries, k, options).ids.numpy()
    return np.mean([len(set(a) & set(b)) / k for a, b in zip(found, expected, strict=True)])


def collections(server):
    client = asking.MilvusServer(server.address)
    return set(client.ask("list_collections", doing="list collections"))


@pytest.mark.parametrize("metric", DISTANCE_METRICS)
def test_flat_search_equals_exact_search(indexes, clusters, metric):
    keys, queries = clusters
    distances, ids = indexes["FLAT", metric].search(queries, 10)
    expected, rows = exact(keys, queries, 10, metric)
    np.testing.assert_allclose(distances, expected, rtol=1e-4, atol=1e-4)
    assert (ids.numpy() == rows).mean() > 0.99


def test_a_graph_finds_nearly_all(indexes, clusters):
    assert recall(indexes["HNSW", "l2"], *clusters) >= 0.95


def test_codes_find_most_and_fewer_lists_less(indexes, clusters):
    index = indexes["IVF_PQ(nlist=16,m=16)", "l2"]
    best = recall(index, *clusters, nprobe=16)
    assert 0.3 < recall(index, *clusters, nprobe=1) < best - 0.02
    assert best >= 0.7


def test_an_index_from_its_beginning_to_its_end(server, clusters, tmp_path, monkeypatch):
    """Batches, entries that come and go, another process, a build that is killed: one index, for each costs seconds."""
    monkeypatch.setattr("knn_seq.index.milvus.MESSAGE_BYTES", 4 * DIMENSION * 130)
    monkeypatch.setattr("knn_seq.index.milvus.MOST_HITS", 5000)
    keys, before = clusters[0][:600], collections(server)
    index = MilvusIndex(DIMENSION, "l2", f"IVF_FLAT(nlist=4)@{server.address}", nprobe=4)
    index.train(keys[:1])
    index.save(tmp_path / "trained")
    assert collections(server) == before
    index.add(keys[:400])  # and here the build was killed

    index = MilvusIndex.load(tmp_path / "trained", writable=True)
    index.add(keys[:500])
    index.save(tmp_path / "saved")
    assert len(collections(server) - before) == 1
    assert index.search(keys[:500], 1).ids.flatten().tolist() == list(range(500))
    index.add(keys[500:])  # and here once more

    index = MilvusIndex.load(tmp_path / "saved", writable=True)
    index.add(keys[500:], np.arange(500, 600))
    assert len(index) == 600
    found = index.search(keys[:2], 700).ids
    assert sorted(found[0].tolist()) == [-1] * 100 + list(range(600))
    with pytest.raises(KnnSeqError, match="id is given twice"):
        index.add(keys[:2], np.array([3, 700]))

    assert index.remove(np.array([1, 3, 5, 9999])) == 3
    assert len(index) == 597
    assert not set(index.search(keys[[1, 3, 5]], 5).ids.flatten().tolist()) & {1, 3, 5}
    index.add(keys[[3]], np.array([3]))
    assert index.search(keys[[3]], 1).ids.tolist() == [[3]]
    index.save(tmp_path / "saved")

    program = (
        "import sys, numpy; from pathlib import Path; from knn_seq.index.milvus import MilvusIndex\n"
        "index = MilvusIndex.load(Path(sys.argv[1]))\n"
        "print(len(index), index.search(numpy.load(sys.argv[2]), 1).ids.flatten().tolist())"
    )
    np.save(tmp_path / "keys.npy", keys[[3, 7]])
    command = [sys.executable, "-c", program, str(tmp_path / "saved"), str(tmp_path / "keys.npy")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("598 [3, 7]\n", "")
    MilvusIndex.delete_external(tmp_path / "saved")
    assert collections(server) == before


def test_what_the_server_refuses_is_one_sentence(server):
    with pytest.raises(
        KnnSeqError, match=f"Milvus at {server.address} cannot build an index BANANA: invalid index type"
    ):
        MilvusIndex.build(vectors(20, DIMENSION), "BANANA").search(vectors(1, DIMENSION), 1)


def test_the_token_is_needed_and_may_lie_in_a_file(server, tmp_path, monkeypatch):
    (tmp_path / "token").write_text(USER + "\n")
    for token, file, said in (
        ("", "", "wants a user or a token: set KNN_SEQ_MILVUS_TOKEN or"),
        ("root:wrong", "", "refuses the token that"),
        ("", str(tmp_path / "missing"), "missing that KNN_SEQ_MILVUS_TOKEN_FILE names cannot be read"),
        ("", str(tmp_path / "token"), None),
    ):
        monkeypatch.setenv("KNN_SEQ_MILVUS_TOKEN", token)
        monkeypatch.setenv("KNN_SEQ_MILVUS_TOKEN_FILE", file)
        index = MilvusIndex(DIMENSION, "l2", "FLAT")
        if said is None:
            index.train(vectors(1, DIMENSION))
            index.save(tmp_path / "index")
        else:
            with pytest.raises(KnnSeqError, match=said):
                index.train(vectors(1, DIMENSION))
    written = [path.read_text() for path in (tmp_path / "index").iterdir()]
    assert written
    assert not any("Milvus" in text for text in written)


def test_translations_are_those_of_an_index_of_ours(store):
    translator = Translator(store, temperature=10.0, weight=0.6, k=8)
    ours = translator.translate(SOURCES, index="own")
    assert translator.translate(SOURCES) == ours
    assert translator.translate(SOURCES, weight=0.0) != ours


def test_an_index_that_is_removed_leaves_nothing_on_the_server(server, store, knn_seq):
    before = collections(server)
    code, _, err = knn_seq("index", store, "--index-recipe", f"milvus:FLAT@{server.address}", "-q")
    assert (code, err) == (0, "")
    assert "milvus" in Datastore(store).manifest.indexes  # its recipe cannot be the name of a folder
    assert len(collections(server) - before) == 1
    Datastore(store).remove_index("milvus")
    assert collections(server) == before


def test_a_server_that_is_away_at_the_start(server, store, knn_seq, tmp_path, monkeypatch):
    """Also for those who have the datastore and not the server."""
    away = free_address()
    for path in (store / "index" / "default").iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "in.txt").write_text("\n".join(SOURCES) + "\n")
    ours = ["translate", store, "--input", tmp_path / "in.txt", "-q", "--temperature", "10", "--weight", "0.6"]
    try:
        for path in (store / "index" / "default").iterdir():
            path.write_text(path.read_text().replace(server.address, away))
        description = store / "index" / "default" / "index.json"
        facts = json.loads(description.read_text())
        facts["bytes"] = (store / "index" / "default" / "index.milvus").stat().st_size
        description.write_text(json.dumps(facts))
        code, out, err = knn_seq(*ours)
        assert (code, out) == (2, "")
        assert err.startswith(f"knn-seq: Milvus at {away} does not answer")
        assert err.count("\n") == 1
        code, out, err = knn_seq(*ours, "--on-index-failure", "base")
        assert code == 0
        assert err.startswith(
            f"knn-seq: Continuing without neighbours, for the index does not answer: Milvus at {away}"
        )
        assert err.count("\n") == 1
    finally:
        for path in tmp_path.glob("index.*"):
            (store / "index" / "default" / path.name).write_text(path.read_text())
    base = knn_seq(*ours[:5], "--weight", "0", "-q")[1]
    assert out == base
    assert knn_seq(*ours)[1] != base


def test_a_server_that_goes_away_and_comes_back(server, store, monkeypatch, caplog):
    """The last test: it kills the server."""
    options = {"temperature": 10.0, "weight": 0.6, "k": 8}
    monkeypatch.setattr(asking, "RETRY_SECONDS", 1.0)
    translator = Translator(store, **options)
    ours, base = translator.translate(SOURCES), translator.translate(SOURCES, weight=0.0)
    retriever, searches = translator.decoder.retriever(translator.decoder.settings()), []
    search = retriever.index.search

    def killing(queries, k, options=None):
        searches.append(len(queries))
        if len(searches) == 3:
            server.kill()
        return search(queries, k, options)

    retriever.index.search = killing
    with pytest.raises(IndexUnavailable, match=f"Milvus at {server.address} does not answer"):
        translator.translate(SOURCES)
    assert len(searches) == 3
    retriever.index.search = search

    # The same from the first batch on, and told once.
    assert translator.translate(SOURCES * 3, batch_size=4, on_index_failure="base") == base * 3
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("Continuing without neighbours, for the index does not answer: Milvus at")

    # It is asked again after a while, and then it is there.
    server.start()
    assert translator.translate(SOURCES, on_index_failure="base") == base
    monkeypatch.setattr(outage, "RETRY_SECONDS", 0.0)
    translator.decoder._outages[None].retry_at = 0.0
    end = time.monotonic() + 60
    while (translated := translator.translate(SOURCES, on_index_failure="base")) != ours and time.monotonic() < end:
        time.sleep(0.5)
    assert translated == ours
    assert caplog.messages[-1] == "The index answers again; continuing with neighbours."
    assert torch.equal(search(torch.zeros(1, 32), 4).ids >= 0, torch.ones(1, 4, dtype=torch.bool))

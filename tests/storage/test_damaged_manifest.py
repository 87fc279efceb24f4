"""Whatever `datastore.json` holds, the store works or one sentence says what is wrong with it."""

from __future__ import annotations

import copy
import io
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout, suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from knn_seq import KnnSeqError, Translator
from knn_seq.cli.main import main
from knn_seq.decoding import stored_settings
from knn_seq.storage import DatastoreFolder, Manifest

WORDS = """full subset memory fixed distance learned encoder bm25 tfidf faiss torch shards lexical Flat PQ8 PQ16x4
PQ4,Refine(keys) l2 ip cosine waiting running done default ../x"""
NUMBERS = (0, 1, 2, 64, 2**16, 2**62, 2**63, 10**30, -1, 0.5, 1e-9, 1e-320, 1e308)
PLAUSIBLE = (*WORDS.split(), *NUMBERS, {}, [], None, True, "")
TEXT = st.text(max_size=8) | st.text(st.characters(categories=["Cs", "Cc"]), min_size=1, max_size=3)
JSON = st.sampled_from(PLAUSIBLE) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def places(data):
    """All places of a JSON object, the names that lead there."""
    for name, value in data.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *rest) for rest in places(value))


@st.composite
def damaged(draw, manifest):
    """A manifest with one to three values replaced, removed or put in, or any JSON."""
    if draw(st.integers(0, 19)) == 0:
        return draw(JSON)
    data = copy.deepcopy(manifest)
    for _ in range(draw(st.integers(1, 3))):
        *above, name = draw(st.sampled_from(sorted(places(data))))
        parent = data
        for step in above:
            parent = parent[step]
        action = draw(st.sampled_from(["replace", "replace", "remove", "insert"]))
        if action == "remove":
            del parent[name]
        else:
            parent[name if action == "replace" else draw(TEXT)] = draw(JSON)
        if not data:
            break
    return data


@pytest.fixture(scope="module")
def store(skip_store, tmp_path_factory):
    """A datastore with everything a manifest may hold."""
    path = tmp_path_factory.mktemp("damaged") / "store"
    shutil.copytree(skip_store.path, path)
    prepared = type(skip_store)(path)
    prepared.prepare_subset(codes="PQ16x4")
    manifest = prepared.manifest
    manifest.defaults |= {"subset_size": 20, "skip": "learned", "index": "default", "retriever_options": {}}
    manifest.tuned = {"subset/fixed": {"k": 4, "temperature": 30.0}, "full/distance": {"weight": 0.25}}
    prepared.save(manifest)
    return prepared


@pytest.fixture(scope="module")
def model(store):
    return store.load_model()


def run(*arguments):
    """A command in this process, its output as a terminal takes it; returns the code and what it says of errors."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, err.buffer.getvalue().decode()


def test_any_manifest_is_read_or_named(store, tmp_path_factory):
    path = tmp_path_factory.mktemp("read")
    manifest, refused = store.manifest.to_dict(), []

    @settings(max_examples=200)
    @given(damaged(manifest))
    def check(data):
        (path / "datastore.json").write_text(json.dumps(data))
        try:
            read = Manifest.load(path)
        except KnnSeqError as error:
            refused.append(str(error))
            return
        for parts in ((), ("subset",), ("full", "distance")):
            stored_settings(DatastoreFolder(path), *parts)
        read.save(path)
        assert Manifest.load(path) == read

    check()
    assert len(set(refused)) > 50
    assert all(sentence.isprintable() for sentence in refused)


def test_any_manifest_gives_a_working_store_or_a_sentence(store, model, tmp_path_factory):
    path = tmp_path_factory.mktemp("works") / "store"
    shutil.copytree(store.path, path)
    manifest, translated = store.manifest.to_dict(), []

    @settings(max_examples=60)
    @example(manifest, "full")
    @example(manifest, "subset")
    @given(damaged(manifest), st.sampled_from([None, "full", "subset"]))
    def check(data, retriever):
        (path / "datastore.json").write_text(json.dumps(data))
        for command in ("info", "index"):
            code, err = run(command, path)
            assert (code, err) == (0, "") or (code == 2 and err.startswith("knn-seq: ") and err.count("\n") == 1)
        with suppress(KnnSeqError):
            Translator(path, model, retriever=retriever, beam_size=2, max_length=6).translate("5 6 7")
            translated.append(retriever)

    check()
    assert translated[:2] == ["full", "subset"]  # nothing is damaged there
    assert len(translated) > 4  # some of the damage does not matter


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("defaults.k", "many"),
        ("defaults.skip", "always"),
        ("subset", {"x": 1}),
        ("indexes.default", {}),
        ("steps", None),
        ("build", {}),
        ("combiners.full/learned", {}),
        ("combiners.full/learned", {"type": "learned", "k": 32, "file": "a", "skip_file": "../a"}),
    ],
)
def test_every_command_says_it_in_one_line(knn_seq, store, save_model, number_corpus, tmp_path, place, value):
    path = tmp_path / "store"
    shutil.copytree(store.path, path)
    data = json.loads((path / "datastore.json").read_text())
    parent, _, name = place.rpartition(".")
    (data[parent] if parent else data)[name] = value
    (path / "datastore.json").write_text(json.dumps(data))
    (tmp_path / "in.txt").write_text("5 6\n")
    before = (path / "datastore.json").read_bytes()
    for command in (
        ("info", path),
        ("info", path, "--json"),
        ("translate", path, "--input", tmp_path / "in.txt"),
        ("translate", path, "--input", tmp_path / "in.txt", "--retriever", "subset"),
        ("index", path),
        ("index", path, "--check"),
        ("index", path, "--index-recipe", "SQ8"),
        ("index", path, "--sentence-search", "bm25"),
        ("build", path, "--model", save_model(), "--corpus", number_corpus, "--index-recipe", "Flat"),
        ("tune", path, "--dev", number_corpus),
    ):
        code, out, err = knn_seq(*command)
        assert (code, out, err.count("\n")) == (2, "", 1), (command, err)
        assert re.search(rf"datastore.json is damaged: (in )?'{place.partition('.')[0]}", err)
    assert (path / "datastore.json").read_bytes() == before

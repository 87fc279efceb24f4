from __future__ import annotations

import json
import os

import numpy as np
import pytest

from knn_seq import __version__
from knn_seq.errors import DamagedFile, KnnSeqError, NotFound
from knn_seq.storage import Counts, DatastoreFolder, KeyInfo, KeyWriter, Manifest, ModelInfo, RaggedWriter, TextWriter
from knn_seq.storage.atomic import write_json
from knn_seq.storage.manifest import STEPS, BuildInfo, CorpusInfo, IndexInfo, SegmentInfo, StepInfo, is_file_name


def example(**steps: str) -> Manifest:
    return Manifest(
        model=ModelInfo("firefox:pt-en", "f00d", "beef", "Ssru", prompt=None),
        keys=KeyInfo("ffn_in", 4, "float16"),
        corpus=CorpusInfo({"files": [{"name": "a.tsv"}]}, "a.tsv"),
        build=BuildInfo(4096, None, 512, "Flat", "l2"),
        counts=Counts(2, 5, {"empty side": 1}),
        segments={"1": SegmentInfo(2, 5)},
        next_segment=2,
        indexes={"main": IndexInfo("faiss", "l2", "Flat", folder="index/main")},
        default_index="main",
        defaults={"k": 16, "temperature": 10.5},
        steps={name: StepInfo(steps.get(name, "done")) for name in STEPS},
    )


def test_round_trip(tmp_path):
    manifest = example(keys="waiting")
    manifest.save(tmp_path)
    assert os.listdir(tmp_path) == ["datastore.json"]
    assert Manifest.load(tmp_path) == manifest
    data = json.loads((tmp_path / "datastore.json").read_text())
    assert data["format_version"] == 3
    assert data["created_with"] == __version__
    assert data["model"]["spec"] == "firefox:pt-en"
    assert data["counts"] == {"sentences": 2, "tokens": 5, "rejected": {"empty side": 1}}
    assert (data["steps"]["keys"], data["subset"]) == ({"state": "waiting"}, {})


def test_unknown_fields_survive(tmp_path):
    path = tmp_path / "datastore.json"
    example().save(tmp_path)
    data = json.loads(path.read_text())
    data["colour"] = ["red"]
    data["model"]["revision"] = {"a": 1}
    data["indexes"]["main"]["lists"] = 16
    data["defaults"]["nprobe"] = "x"
    data["steps"]["paint"] = {"state": "waiting", "by": "hand"}
    data["extra"] = "a field of that very name"
    path.write_text(json.dumps(data))
    manifest = Manifest.load(tmp_path)
    assert manifest.extra["colour"] == ["red"]
    assert manifest.indexes["main"].extra == {"lists": 16}
    assert manifest.unfinished_step() is None
    manifest.save(tmp_path)
    assert json.loads(path.read_text()) == data


def test_numbers_of_numpy_are_numbers(tmp_path):
    manifest = example()
    manifest.defaults = {"k": np.int64(4), "temperature": np.float32(0.5), "flag": np.bool_(True)}
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path).defaults == {"k": 4, "temperature": 0.5, "flag": True}


def test_a_manifest_that_cannot_be_written_leaves_the_old_one(tmp_path):
    example().save(tmp_path)
    before = (tmp_path / "datastore.json").read_bytes()
    for value, error in ((float("nan"), ValueError), (object(), TypeError)):
        manifest = example()
        manifest.defaults["k"] = value
        with pytest.raises(error):
            manifest.save(tmp_path)
    assert (tmp_path / "datastore.json").read_bytes() == before


def test_no_datastore(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(NotFound, match=f"{path} is not a datastore"):
            Manifest.load(path)


def changed(place="", value=None, **more):
    """The text of a manifest with another value at a place such as "defaults.k"; None: without it."""
    data = example().to_dict()
    parent, (*above, name) = data, place.split(".")
    for step in above:
        parent = parent[step]
    parent[name] = value
    if value is None:
        del parent[name]
    return json.dumps(data | more)


FLAT = {"type": "faiss", "metric": "l2", "folder": "index/main"}
SUBSET = {
    "sentence_search": "bm25",
    "requested_sentence_index": "auto",
    "requested_codes": "auto",
    "codes": "Flat",
    "metric": "l2",
    "sentence_index": {"type": "lexical", "folder": "sentences.2"},
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ("", "it is not JSON"),
        ("[" * 900 + "]" * 900, "is nested too deeply"),
        ("[]", "it is [], not an object"),
        ("{}", "'model' is missing"),
        (changed("model", "m"), "'model' is 'm', not an object"),
        (changed("model.spec", 7), "'model.spec' is 7, not a text"),
        (changed("model.prompt", False), "'model.prompt' is false, not a text or null"),
        (changed("keys.dimension", "4"), "'keys.dimension' is '4', not a whole number"),
        (changed("keys.dimension", True), "'keys.dimension' is true, not a whole number"),
        (changed("counts.tokens", -1), "'counts.tokens' is -1, not a whole number"),
        (changed("counts.tokens", 2**63), "'counts.tokens' is 9223372036854775808, not a number of 64 bits"),
        (changed("counts.rejected", {"empty side": 0.5}), "'counts.rejected.empty side' is 0.5, not a whole number"),
        (changed("build"), "'build' is missing"),
        (changed("build", {}), "'build.batch_tokens' is missing"),
        (changed("build.batch_tokens", "x"), "'build.batch_tokens' is 'x', not a whole number"),
        (changed("build.batch_tokens", 0), "in 'build', batch-tokens must be at least 1, not 0"),
        (changed("build.distance_metric", "l3"), "'build.distance_metric' is 'l3', not 'l2' or 'ip' or 'cosine'"),
        (changed("indexes", {"main": "Flat"}), "'indexes.main' is 'Flat', not an object"),
        (changed("indexes.main", {}), "'indexes.main.type' is missing"),
        (changed("indexes.main.metric", ["l2"]), """'indexes.main.metric' is ["l2"], not 'l2' or 'ip' or 'cosine'"""),
        (changed("indexes.main.recipe", {}), "'indexes.main.recipe' is an object, not a text or null"),
        *(
            (changed("indexes", {"main": FLAT, name: FLAT}), f"'indexes' has {name!r}")
            for name in ("", "..", "../x", "a/b", "a\0b")
        ),
        (changed("default_index", 3), "'default_index' is 3, not a text or null"),
        (changed("default_index", "other"), "'default_index' is 'other', which is not in 'indexes' (main)"),
        (changed("default_index"), "'default_index' is null, which is not in 'indexes' (main)"),
        (changed("subset", {"x": 1}), "'subset.sentence_search' is missing"),
        (changed("subset", {"sentence_search": "bm25"}), "'subset.requested_sentence_index' is missing"),
        (changed("subset", SUBSET | {"sentence_search": 7}), "'subset.sentence_search' is 7, not a text"),
        (changed("subset", SUBSET | {"metric": "zz"}), "'subset.metric' is 'zz', not 'l2' or 'ip' or 'cosine'"),
        (changed("subset", SUBSET | {"sentence_index": {}}), "'subset.sentence_index.type' is missing"),
        (changed("indexes.main.folder"), "'indexes.main.folder' is missing"),
        *(
            (changed("indexes.main.folder", folder), f"'indexes.main.folder' is {folder!r}, not a folder in index/")
            for folder in ("", "main", "/tmp", "index", "index/", "index/..", "../index/a", "index/a/b", "index/.a")
        ),
        *(
            (
                changed("subset", SUBSET | {"sentence_index": {"type": "lexical", "folder": folder}}),
                f"'subset.sentence_index.folder' is {folder!r}, not a folder such as sentences",
            )
            for folder in ("", "..", "sentences.", "sentences.0", "sentences/a", "index/main", "/tmp")
        ),
        (changed("subset", SUBSET | {"codes_folder": "vectors"}), "'subset.codes_folder' is 'vectors', not a folder"),
        (changed("subset", SUBSET | {"vectors_folder": 7}), "'subset.vectors_folder' is 7, not a text or null"),
        (changed("defaults.k", "many"), "'defaults.k' is 'many', not a whole number or null"),
        (changed("defaults.k", 2.5), "'defaults.k' is 2.5, not a whole number or null"),
        (changed("defaults.k", [1]), "'defaults.k' is [1], not a whole number or null"),
        (changed("defaults.k", 0), "in 'defaults', k must be at least 1, not 0"),
        (changed("defaults.k", 10**12), "in 'defaults', k must be at most 65536, not 1000000000000"),
        (changed("defaults.temperature", "x"), "'defaults.temperature' is 'x', not a number or null"),
        (changed("defaults.temperature", []), "'defaults.temperature' is [], not a number or null"),
        (changed("defaults.temperature", float("nan")), "'defaults.temperature' is NaN, not a finite number"),
        (
            changed("defaults.temperature", 7.25).replace("7.25", "1e999"),
            "'defaults.temperature' is Infinity, not a finite",
        ),
        (changed("defaults.temperature", 1e-320), "in 'defaults', the temperature must lie between 1e-09 and 1e+09"),
        (changed("defaults.weight", "0.5"), "'defaults.weight' is '0.5', not a number or null"),
        (changed("defaults.retriever", 7), "'defaults.retriever' is 7, not a text or null"),
        (changed("defaults.combiner", 3), "'defaults.combiner' is 3, not a text or null"),
        (changed("defaults.index_options", "nprobe"), "'defaults.index_options' is 'nprobe', not an object or null"),
        (changed("defaults.median_distance", "far"), "'defaults.median_distance' is 'far', not a number"),
        (changed("defaults", ["k"]), """'defaults' is ["k"], not an object"""),
        (changed("tuned", {"full/fixed": {"k": "x"}}), "'tuned.full/fixed.k' is 'x', not a whole number"),
        (changed("tuned", {"full/fixed": {"weight": 2}}), "in 'tuned.full/fixed', the weight must lie between 0 and 1"),
        (changed("steps"), "'steps' is missing"),
        (changed("steps", {}), "'steps.text' is missing"),
        (changed("steps.text", {}), "'steps.text.state' is missing"),
        (changed("steps.text.state", "gone"), "'steps.text.state' is 'gone', not 'waiting' or 'running' or 'done'"),
        (changed("format_version", "2"), "'format_version' is '2', not a whole number"),
        (changed("colour", {"red": [1.0, float("inf")]}), "'colour.red.1' is Infinity, not a finite number"),
        (changed("corpus.description", "\ud800"), "'corpus.description' is '\\ud800', not a text in Unicode"),
        (changed("corpus.identity", {"\ud800": 1}), "'a name in corpus.identity' is '\\ud800', not a text in Unicode"),
        (changed("model.spec", ["long"] * 100), "..., not a text"),
    ],
)
def test_a_damaged_manifest_is_named_by_its_field(tmp_path, text, message):
    (tmp_path / "datastore.json").write_text(text)
    with pytest.raises(DamagedFile) as caught:
        Manifest.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/datastore.json is damaged: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text", ['{"format_version": 4, "created_with": "9.1"}', changed("format_version", 4, created_with="9.1")]
)
def test_a_newer_manifest(tmp_path, text):
    (tmp_path / "datastore.json").write_text(text)
    with pytest.raises(KnnSeqError, match=r"newer knn-seq \(9.1, format 4\): update") as caught:
        Manifest.load(tmp_path)
    assert not isinstance(caught.value, DamagedFile)


@pytest.mark.parametrize("text", ['{"format_version": 1, "created_with": "0.1"}', changed("format_version", 0)])
def test_an_older_manifest(tmp_path, text):
    (tmp_path / "datastore.json").write_text(text)
    with pytest.raises(KnnSeqError, match=r"older knn-seq \(.*, format [01]\), and .* reads format 3: build") as caught:
        Manifest.load(tmp_path)
    assert not isinstance(caught.value, DamagedFile)


@pytest.fixture
def store(tmp_path):
    folder = DatastoreFolder(tmp_path / "deep" / "store")
    with folder.lock():
        folder.save(example())
        segment = folder.base
        segment.path.mkdir(parents=True)
        for path, tokens in ((segment.values_path, [[1, 2, 3], [4, 5]]), (segment.sources_path, [[9], [8, 7]])):
            with RaggedWriter(path, {"": np.int32}) as writer:
                writer.extend((np.concatenate(tokens), [len(sequence) for sequence in tokens]))
                writer.finish()
        with TextWriter(segment.text_path) as writer:
            writer.extend_texts([("um", "one"), ("dois", "two")])
            writer.finish()
        keys, _ = KeyWriter.open_or_create(segment.keys_path, (5, 4), "float16")
        keys.write(0, np.arange(20).reshape(5, 4))
        keys.finish()
    return folder.path


def test_reading_a_datastore_writes_nothing(store):
    def snapshot():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (store, *store.rglob("*"))}

    before = snapshot()
    for path in store.rglob("*"):
        path.chmod(0o444)
    folder = DatastoreFolder(str(store))
    folder.require_complete()
    assert folder.exists()
    assert len(folder) == 5
    assert folder.manifest.model.fingerprint == "f00d"
    assert folder.values[1].tolist() == [4, 5]
    assert folder.sources[1].tolist() == [8, 7]
    assert folder.texts[folder.values.row_of(3)] == ("dois", "two")
    assert folder.keys[4].tolist() == [16, 17, 18, 19]
    assert folder.keys is folder.keys
    assert snapshot() == before


def test_an_unfinished_datastore(store):
    folder = DatastoreFolder(store)
    folder.save(example(keys="waiting", index="waiting"))
    for same in (folder, DatastoreFolder(store)):
        with pytest.raises(KnnSeqError, match="stopped at 'keys'; run the same command again to resume"):
            same.require_complete()


def test_a_folder_that_is_not_there(tmp_path):
    folder = DatastoreFolder(tmp_path / "store")
    assert folder
    assert not folder.exists()
    with pytest.raises(NotFound, match="is not a datastore"):
        folder.require_complete()
    with pytest.raises(NotFound, match="is not a datastore"):
        len(folder)
    assert os.listdir(tmp_path) == []


def test_index_names():
    assert is_file_name("IVF1024,PQ64")
    for name in ("", "..", "a/b", "/a", ".hidden", "a\\b", "a\nb", "a\0b", "\ud800", "é" * 101):
        assert not is_file_name(name)


def test_an_index_lies_where_the_manifest_says(store):
    folder = DatastoreFolder(store)
    assert folder.index_folder("main") == store / "index" / "main"
    with pytest.raises(NotFound, match="has no index 'other': it has main"):
        folder.index_folder("other")


def test_write_json_leaves_nothing_beside(tmp_path):
    for value in (1, {"ç": [None]}):
        write_json(tmp_path / "a.json", value)
        assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == value
    assert os.listdir(tmp_path) == ["a.json"]

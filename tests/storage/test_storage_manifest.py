from __future__ import annotations

import json
import os

import numpy as np
import pytest

from knn_seq import __version__
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, NotFound
from knn_seq.storage import Counts, DatastoreFolder, KeyInfo, KeyWriter, Manifest, ModelInfo, RaggedWriter, TextWriter
from knn_seq.storage.atomic import write_json
from knn_seq.storage.manifest import CorpusInfo


def example(**steps: str) -> Manifest:
    return Manifest(
        model=ModelInfo("firefox:pt-en", "f00d", "beef", "Ssru", prompt=None),
        keys=KeyInfo("ffn_in", 4, "float16"),
        corpus=CorpusInfo({"files": [{"name": "a.tsv"}]}, "a.tsv"),
        counts=Counts(2, 5, {"empty side": 1}),
        indexes={"main": {"type": "faiss", "recipe": "Flat", "metric": "l2"}},
        default_index="main",
        defaults={"k": 16, "temperature": 10.5},
        steps={name: {"state": state} for name, state in steps.items()},
    )


def test_round_trip(tmp_path):
    manifest = example(text="done", keys="waiting")
    manifest.save(tmp_path)
    assert os.listdir(tmp_path) == ["datastore.json"]
    assert Manifest.load(tmp_path) == manifest
    data = json.loads((tmp_path / "datastore.json").read_text())
    assert data["format_version"] == 1
    assert data["created_with"] == __version__
    assert data["model"]["spec"] == "firefox:pt-en"
    assert data["counts"] == {"sentences": 2, "tokens": 5, "rejected": {"empty side": 1}}


def test_unknown_fields_survive(tmp_path):
    path = tmp_path / "datastore.json"
    example().save(tmp_path)
    data = json.loads(path.read_text())
    data["colour"] = ["red"]
    data["model"]["revision"] = {"a": 1}
    data["extra"] = "a field of that very name"
    path.write_text(json.dumps(data))
    manifest = Manifest.load(tmp_path)
    assert manifest.extra["colour"] == ["red"]
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


def changed(**changes):
    return json.dumps(example().to_dict() | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged: it is not JSON"),
        ("", "is damaged: it is not JSON"),
        ("[]", "is damaged: Manifest is not an object"),
        ("{}", "is damaged: 'model' is missing"),
        (changed(model="m"), "is damaged: ModelInfo is not an object"),
        (changed(keys={"kind": "ffn_in", "dimension": "4", "dtype": "float16"}), "is damaged: 'dimension' is '4'"),
        (changed(indexes={"main": "Flat"}), "is damaged: 'indexes' is"),
        (changed(default_index=3), "is damaged: 'default_index' is 3"),
        (changed(format_version=2, created_with="9.1"), r"newer knn-seq \(9.1, format 2\): update"),
        ('{"format_version": 2}', "newer knn-seq"),
    ],
)
def test_a_broken_or_newer_manifest(tmp_path, text, message):
    (tmp_path / "datastore.json").write_text(text)
    with pytest.raises(KnnSeqError, match=message) as caught:
        Manifest.load(tmp_path)
    assert isinstance(caught.value, DamagedFile) == ("damaged" in message)


@pytest.fixture
def store(tmp_path):
    folder = DatastoreFolder(tmp_path / "deep" / "store")
    with folder.lock():
        for path, tokens in ((folder.values_path, [[1, 2, 3], [4, 5]]), (folder.sources_path, [[9], [8, 7]])):
            with RaggedWriter(path, {"": np.int32}) as writer:
                writer.extend((np.concatenate(tokens), [len(sequence) for sequence in tokens]))
                writer.finish()
        with TextWriter(folder.text_path) as writer:
            writer.extend_texts([("um", "one"), ("dois", "two")])
            writer.finish()
        keys, _ = KeyWriter.open_or_create(folder.keys_path, (5, 4), "float16")
        keys.write(0, np.arange(20).reshape(5, 4))
        keys.finish()
        folder.save(example(text="done", keys="done"))
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
    folder.save(example(text="done", keys="waiting", index="waiting"))
    for same in (folder, DatastoreFolder(store)):
        with pytest.raises(KnnSeqError, match="stopped at 'keys'; run the same command again to resume"):
            same.require_complete()


def test_a_folder_that_is_not_there(tmp_path):
    folder = DatastoreFolder(tmp_path / "store")
    assert folder
    assert not folder.exists()
    with pytest.raises(NotFound, match="is not a datastore"):
        folder.require_complete()
    with pytest.raises(NotFound, match=r"There is no file .*values\.h5"):
        len(folder)
    assert os.listdir(tmp_path) == []


def test_index_folders(tmp_path):
    folder = DatastoreFolder(tmp_path)
    assert folder.index_folder("IVF1024,PQ64").relative_to(tmp_path).parts == ("index", "IVF1024,PQ64")
    for name in ("", "..", "a/b", "/a", ".hidden", "a\\b"):
        with pytest.raises(InvalidSetting, match="cannot be called"):
            folder.index_folder(name)


def test_write_json_leaves_nothing_beside(tmp_path):
    for value in (1, {"ç": [None]}):
        write_json(tmp_path / "a.json", value)
        assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == value
    assert os.listdir(tmp_path) == ["a.json"]

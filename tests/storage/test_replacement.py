"""Folders of a datastore that are replaced while others read them, and disks that are full."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from knn_seq.datastore import Datastore
from knn_seq.errors import DiskFull, KnnSeqError, NotFound
from knn_seq.storage.atomic import disk_errors, disk_full
from knn_seq.storage.replacement import Replacement, delete_unnamed
from knn_seq.translator import Translator


@pytest.fixture
def store(number_store, tmp_path):
    shutil.copytree(number_store.path, tmp_path / "store")
    return Datastore(tmp_path / "store")


def made(store: Path, text: str, in_use: str | None) -> str:
    replacement = Replacement(store, "index/a", {"text": text}, in_use)
    replacement.prepare()
    replacement.new.mkdir(exist_ok=True)
    (replacement.new / "file").write_text(text)
    return replacement.publish()


def test_each_folder_has_a_name_of_its_own(tmp_path):
    names = [made(tmp_path, "one", None)]
    for text in ("two", "three"):
        names.append(made(tmp_path, text, names[-1]))
        assert (tmp_path / names[-2]).exists()
        delete_unnamed(tmp_path, {names[-1]})
        assert os.listdir(tmp_path / "index") == [Path(names[-1]).name]
        assert (tmp_path / names[-1] / "file").read_text() == text
    assert names == ["index/a", "index/a.2", "index/a.3"]


def test_a_name_that_another_one_has_is_left_out(tmp_path):
    (tmp_path / "index" / "a.2").mkdir(parents=True)
    assert made(tmp_path, "one", "index/a") == "index/a.3"


def test_what_was_published_and_not_named_is_resumed(tmp_path):
    assert made(tmp_path, "one", None) == "index/a"
    delete_unnamed(tmp_path, set())
    assert os.listdir(tmp_path / "index") == [".a.building"]
    same = Replacement(tmp_path, "index/a", {"text": "one"}, None)
    same.prepare()
    assert same.complete
    other = Replacement(tmp_path, "index/a", {"text": "two"}, None)
    other.prepare()
    assert not other.complete
    assert not other.new.exists()


def test_only_what_is_replaced_is_deleted(tmp_path):
    for name in ("codes", "codes.2", "codes.x", "mine", "index/b", "index/.c.building"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "index" / ".c.building" / "identity.json").write_text("{}")
    (tmp_path / "index" / "note.txt").write_text("")
    delete_unnamed(tmp_path, {"codes.2"})
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.name != "identity.json"}
    assert left == {"codes.2", "codes.x", "mine", "index", "index/.c.building", "index/note.txt"}


def test_a_reader_finds_the_index_that_replaced_the_one_it_knows(store):
    reader, opened = Datastore(store.path), Datastore(store.path).open_index()
    before = opened.search(store.keys[:9], 4)
    assert reader.manifest.indexes["default"].folder == "index/default"
    store.add_index("IVF4,SQ8", "default")
    assert os.listdir(store.path / "index") == ["default.2"]
    assert reader.open_index().recipe == "IVF4,SQ8"
    assert (opened.search(store.keys[:9], 4).ids == before.ids).all()  # it was opened before


def test_a_reader_finds_the_subset_search_that_replaced_the_one_it_knows(store):
    model = store.load_model()
    store.prepare_subset("encoder", codes="PQ16x4", model=model)
    reader = Datastore(store.path)
    assert reader.prepared_subset().codes == "PQ16x4"
    vectors = store.manifest.subset.vectors_folder
    store.prepare_subset("encoder", codes="PQ8x4", model=model)
    assert store.manifest.subset.vectors_folder == vectors  # the same: not computed again
    store.prepare_subset("bm25", codes="PQ8x4", model=model)
    assert store.manifest.subset.codes_folder == "codes.2"
    translator = Translator(reader, model, retriever="subset", max_length=4)
    assert translator.translate("5 6 7")
    assert translator.store.prepared_subset().sentence_search == "bm25"


def test_an_index_that_is_missing_is_still_said_to_be(store):
    shutil.rmtree(store.path / "index" / "default")
    with pytest.raises(NotFound, match="There is no complete index"):
        store.open_index()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "a.npy"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Can't write data (file write failed: errno = 28, error message = 'No space left on device')"),
        ValueError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("Error in virtual size_t faiss::FileIOWriter::operator(): write error: File too large"),
    ],
)
def test_errors_of_a_full_disk(error, tmp_path):
    said = r"^The disk is full \(.*\) at .*: what was finished is on the disk"
    with pytest.raises(DiskFull, match=said) as caught, disk_errors(tmp_path / "b"), disk_errors(tmp_path / "a.npy"):
        raise error
    assert "a.npy" in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "no"), RuntimeError("errno = 5"), KnnSeqError("errno = 28")])
def test_other_errors_stay_what_they_are(error, tmp_path):
    assert disk_full(error) is None
    with pytest.raises(type(error)) as caught, disk_errors(tmp_path):
        raise error
    assert caught.value is error

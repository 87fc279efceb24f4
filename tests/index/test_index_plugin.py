"""An index of another package needs no change in ours."""

from __future__ import annotations

import importlib
import shutil
import sys

import numpy as np
import pytest
import torch

from knn_seq.datastore import Datastore
from knn_seq.errors import KnnSeqError
from knn_seq.index import INDEXES

SOURCE = '''
import numpy as np
import torch

from knn_seq.index import SearchIndex
from knn_seq.registry import Option


class ListIndex(SearchIndex):
    """Keeps everything in a list."""

    declared_options = {
        "newest": Option(1000000, "search only so many of the last entries", int, 1),
        "scale": Option(1.0, "of the distances", float, when_built=True),
    }
    file_name = "list.npy"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.keys = []

    def __len__(self):
        return len(self.keys)

    @property
    def memory(self):
        return 4 * self.dimension * len(self)

    def _train(self, sample):
        pass

    def _add(self, keys, ids):
        self.keys += list(keys)

    def _search(self, queries, k, options):
        near = options["scale"] * torch.cdist(queries, torch.stack(self.keys)) ** 2
        near[:, : max(len(self) - options["newest"], 0)] = torch.inf
        distances, ids = near.topk(k, largest=False)
        return distances, ids.masked_fill(distances.isinf(), -1)

    def _save(self, path):
        with path.open("wb") as file:
            np.save(file, torch.stack(self.keys).numpy())

    def _load(self, path):
        self.keys = list(torch.from_numpy(np.load(path)))
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A tiny installed package: a module, and the metadata that pip would write."""
    (tmp_path / "list_index_package.py").write_text(SOURCE)
    metadata = tmp_path / "list_index_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: list-index-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[knn_seq.index]\nlist = list_index_package:ListIndex\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    INDEXES._classes.pop("list", None)
    sys.modules.pop("list_index_package", None)


@pytest.mark.usefixtures("package")
def test_an_installed_index_is_found_by_name(tmp_path):
    assert "list" in INDEXES.names()
    keys = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float16)
    index = INDEXES.get("list").build(keys)
    index.save(tmp_path / "index")
    loaded = INDEXES.get("list").load(tmp_path / "index")
    faiss = INDEXES.get("faiss").build(keys, "Flat")
    ours, theirs = faiss.search(keys[:20], 300), loaded.search(keys[:20], 300)
    assert torch.equal(theirs.ids[:, 200:], torch.full((20, 100), -1))
    torch.testing.assert_close(theirs.distances, ours.distances, atol=1e-3, rtol=1e-3)
    assert torch.equal(theirs.ids[:, :1], ours.ids[:, :1])


@pytest.mark.usefixtures("package")
def test_its_own_options_work_in_every_command(number_store, tmp_path, knn_seq, monkeypatch):
    store = shutil.copytree(number_store.path, tmp_path / "store")
    command = ("index", store, "--index-recipe", "list", "--index-option", "scale=2", "-q")
    code, _, err = knn_seq(*command)
    assert code == 0, err
    assert Datastore(store).manifest.indexes["list"].options == {"newest": 1000000, "scale": 2.0}

    def recall(*options):
        code, out, err = knn_seq("index", store, "--check", "--name", "list", "-q", *options)
        assert code == 0, err
        return float(out.split()[1])

    assert recall("--index-option", "newest=5") < recall() == 1.0
    (tmp_path / "in.txt").write_text("5 6 7\n9 10 11 12\n")
    translate = ("translate", store, "--input", tmp_path / "in.txt", "-q", "--index", "list", "--weight", 0.9)
    searched = []
    search = INDEXES.get("list")._search
    monkeypatch.setattr(
        INDEXES.get("list"),
        "_search",
        lambda self, queries, k, options: searched.append(options) or search(self, queries, k, options),
    )
    assert knn_seq(*translate, "--index-option", "newest=7")[0] == 0
    assert {(options["newest"], options["scale"]) for options in searched} == {(7, 2.0)}
    for option, sentence in (
        ("newest=0", "The index 'list' takes as its option 'newest' a whole number from 1 on"),
        ("oldest=1", "The index 'list' has no option 'oldest': it has newest, scale"),
        ("scale=3", "The index 'list' takes the option 'scale' only when it is built"),
    ):
        code, _, err = knn_seq(*translate, "--index-option", option)
        assert (code, sentence in err) == (2, True), err


def test_an_unknown_index_is_refused_with_the_names_there_are():
    with pytest.raises(KnnSeqError, match=r"no index 'nearest': choose from .*faiss"):
        INDEXES.get("nearest")

"""An index of another package needs no change in ours."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
import torch

from knn_seq.errors import KnnSeqError
from knn_seq.index import INDEXES

SOURCE = '''
import numpy as np
import torch

from knn_seq.index import SearchIndex


class ListIndex(SearchIndex):
    """Keeps everything in a list."""

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

    def _search(self, queries, k):
        near = torch.cdist(queries, torch.stack(self.keys)) ** 2
        return near.topk(k, largest=False)

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


def test_an_unknown_index_is_refused_with_the_names_there_are():
    with pytest.raises(KnnSeqError, match=r"no index 'nearest': choose from .*faiss"):
        INDEXES.get("nearest")

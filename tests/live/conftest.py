"""Small datastores that change."""

from __future__ import annotations

import shutil

import pytest
from tiny_models import make_model

from knn_seq.datastore import Datastore
from knn_seq.models import Model

OPTIONS = {"key_dtype": "float32", "index_recipe": "Flat", "calibration_sentences": 0, "batch_tokens": 64, "workers": 1}
PAIRS = [(f"{8 + n} {9 + 2 * n % 40} {10 + 3 * n % 40}", f"{20 + n} {21 + n} {50 - n}") for n in range(12)]


@pytest.fixture(scope="session")
def model() -> Model:
    return make_model("marian")


@pytest.fixture(scope="session")
def built(tmp_path_factory, model):
    """Datastores of the same pairs, by what they are prepared with."""
    made: dict[str | None, Datastore] = {}

    def build(search: str | None = None) -> Datastore:
        if search not in made:
            path = tmp_path_factory.mktemp("live") / "store"
            made[search] = Datastore.build(path, model, PAIRS, sentence_search=search, codes="Flat", **OPTIONS)
        return made[search]

    return build


@pytest.fixture
def fresh(built, tmp_path):
    """A copy of one of them, to change."""
    count = 0

    def copy(search: str | None = None) -> Datastore:
        nonlocal count
        count += 1
        path = tmp_path / f"store-{count}"
        shutil.copytree(built(search).path, path)
        return Datastore(path)

    return copy


@pytest.fixture
def store(fresh):
    return fresh()

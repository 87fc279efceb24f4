"""Small datastores that change."""

from __future__ import annotations

import shutil

import pytest
from live_stores import OPTIONS, PAIRS
from tiny_models import make_model

from knn_seq.datastore import Datastore
from knn_seq.models import Model


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

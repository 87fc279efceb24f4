"""A served datastore of the tiny model, in a process of its own and in this one."""

from __future__ import annotations

import shutil

import pytest
from serve_process import ServerProcess
from starlette.testclient import TestClient

from knn_seq.datastore import Datastore
from knn_seq.serve.app import make_app
from knn_seq.serve.settings import ServerSettings


@pytest.fixture(scope="session")
def language_store(tmp_path_factory, save_model, number_corpus):
    """A finished datastore that says that it translates from Portuguese to English."""
    path = tmp_path_factory.mktemp("language-store") / "store"
    options = {"index_recipe": "Flat", "combiner": "fixed", "source_lang": "pt", "target_lang": "en"}
    Datastore.build(path, save_model(), number_corpus, **options).close()
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory, language_store):
    """A server in a process of its own; what tests write into its memory, they write for themselves."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(language_store, folder / "store")
    with ServerProcess([f"numbers={folder / 'store'}"], folder / "log") as process:
        yield process


@pytest.fixture
def make_client(tmp_path, language_store):
    """A client of an application in this process, with settings of its own and a copy of the datastore."""
    opened = []

    def make(**settings):
        path = tmp_path / f"store{len(opened)}"
        shutil.copytree(language_store, path)
        client = TestClient(make_app({"numbers": path}, ServerSettings(**settings)), raise_server_exceptions=False)
        opened.append(client.__enter__())
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)

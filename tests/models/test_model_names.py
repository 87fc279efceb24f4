"""Names that cannot be those of models are refused before anybody is asked for them."""

from __future__ import annotations

import socket

import pytest

from knn_seq.errors import InvalidSetting
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a hub was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    "name", ["my model", "a/b/c", "./nowhere", "../nowhere", "~/model", "/no/such/folder", "models/", "", "über-modell"]
)
def test_no_folder_and_no_name_of_a_hub(name):
    with pytest.raises(InvalidSetting, match="a model on a hub cannot be called so"):
        load_model(ModelSettings(name))


@pytest.mark.parametrize("name", ["firefox", "fairseq", "transformers"])
def test_a_kind_of_models_is_no_model(name):
    with pytest.raises(InvalidSetting, match=f"'{name}' is a kind of models, not a model: write {name}:NAME"):
        load_model(ModelSettings(name))


def test_the_firefox_pairs_are_listed(monkeypatch):
    monkeypatch.setattr("knn_seq.models.firefox.installed_pairs", lambda: ["en-pt", "pt-en"])
    with pytest.raises(InvalidSetting, match="choose from en-pt, pt-en, or give a path to a model folder"):
        load_model(ModelSettings("firefox"))


def test_a_folder_of_any_name_is_read(save_model, tmp_path, monkeypatch):
    (tmp_path / "my model").symlink_to(save_model())
    monkeypatch.chdir(tmp_path)
    assert load_model(ModelSettings("my model", device="cpu")).dimension

"""The plug-in's options, without fairseq: they become the settings that a Translator has."""

from __future__ import annotations

import itertools
import shutil
from argparse import ArgumentParser
from dataclasses import fields

import pytest

from knn_seq import Datastore, Translator
from knn_seq.decoding import KnnDecoder
from knn_seq.decoding.stored_settings import store_settings, stored_settings
from knn_seq.errors import InvalidSetting
from knn_seq.fairseq.generate.options import (
    OPTIONS,
    add_options,
    config_fields,
    given_options,
    open_datastores,
    search_options,
)
from knn_seq.settings import SearchSettings, override

PARTS = list(itertools.product(("full", "subset"), ("fixed", "distance"), (None, "lists")))


@pytest.fixture(scope="module")
def stores(number_store, tmp_path_factory):
    """The same datastore as it was built, and with settings tuned for each choice of parts."""
    made = {kind: tmp_path_factory.mktemp(kind) / "store" for kind in ("untuned", "tuned")}
    for path in made.values():
        shutil.copytree(number_store.path, path)
        store = Datastore(path)
        store.add_index("IVF4,Flat", "lists")
        store.prepare_subset("encoder", codes="Flat")
    store = Datastore(made["tuned"])
    for number, parts in enumerate(PARTS):
        values = {"k": 101 + number, "temperature": 50.0 + number, "weight": 0.1 + number / 100}
        store_settings(store, override(stored_settings(store, *parts), values), as_default=number == 3)
    return made


@pytest.fixture(scope="module")
def model(number_store):
    return number_store.load_model(device="cpu")


def plugin_settings(path, model, *arguments: str) -> SearchSettings:
    """The settings that fairseq-generate decodes with for these arguments."""
    parser = ArgumentParser()
    add_options(parser)
    options = given_options(parser.parse_args(["--knn-datastore", str(path), *arguments]))
    [store] = open_datastores(options)
    return KnnDecoder(store, model, search_options(options)).settings()


@pytest.mark.parametrize(("retriever", "combiner", "index"), [(None, None, None), *PARTS])
@pytest.mark.parametrize("kind", ["untuned", "tuned"])
def test_settings_are_those_of_a_translator(stores, model, kind, retriever, combiner, index):
    given = {"retriever": retriever, "combiner": combiner, "index": index}
    given = {name: value for name, value in given.items() if value is not None}
    arguments = [word for name, value in given.items() for word in (f"--knn-{name}", value)]
    translator = Translator(stores[kind], model, **given)
    assert plugin_settings(stores[kind], model, *arguments) == translator.settings({})[0]
    assert Translator(stores[kind], model).settings(given)[0] == translator.settings({})[0]
    assert (translator.settings({})[0].k > 100) == (kind == "tuned")

    given |= {"k": 3, "weight": 0.25, "skip": "learned", "on_index_failure": "base"}
    arguments += ["--knn-k", "3", "--knn-weight", "0.25", "--knn-skip", "learned"]
    arguments += ["--knn-on-index-failure", "base"]
    if index is not None and retriever == "full":
        given["index_options"] = {"nprobe": "2"}
        arguments += ["--knn-index-options", "nprobe=2"]
    expected = Translator(stores[kind], model, **given).settings({})[0]
    assert plugin_settings(stores[kind], model, *arguments) == expected


def test_every_search_setting_is_an_option():
    of_prompts = {"shots", "shots_by"}  # for models that read one
    assert {f"knn_{entry.name}" for entry in fields(SearchSettings) if entry.name not in of_prompts} <= OPTIONS.keys()
    assert [name for name, *_ in config_fields()] == list(OPTIONS)


def test_searches_are_skipped_as_a_network_says_or_not_at_all(stores, model):
    with pytest.raises(InvalidSetting, match="Skip must be learned, not always"):
        plugin_settings(stores["untuned"], model, "--knn-skip", "always")
    assert plugin_settings(stores["untuned"], model).skip is None


def test_another_distance_metric_is_refused(stores):
    options = {"datastore": str(stores["untuned"]), "distance_metric": "cosine"}
    with pytest.raises(InvalidSetting, match="is searched by l2, not by cosine"):
        open_datastores(options)
    assert open_datastores(options | {"distance_metric": "l2"})


def test_a_datastore_is_needed_unless_it_has_no_weight():
    with pytest.raises(InvalidSetting, match="--knn-datastore"):
        open_datastores({})
    assert open_datastores({"weight": 0}) == []

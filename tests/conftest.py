"""Models and datastores that several tests share."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from skipping import skip_half
from tiny_models import make_network, number_line, number_tokenizer

from knn_seq.cli.main import main
from knn_seq.datastore import Datastore

# Tests end alike on every machine, however busy; `pytest --hypothesis-profile=default` looks for new examples.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
os.environ.setdefault("SOURCE_DATE_EPOCH", "1760000000")  # what is built twice is the same to the last byte


@pytest.fixture(scope="session")
def save_model(tmp_path_factory):
    """Save a tiny network with its tokenizer as a folder that from_pretrained loads; returns the path."""
    made = {}

    def save(kind="marian", seed=0):
        if (kind, seed) not in made:
            path = tmp_path_factory.mktemp(f"{kind}-{seed}")
            make_network(kind, seed).save_pretrained(path)
            number_tokenizer().save_pretrained(path)
            made[kind, seed] = path
        return str(made[kind, seed])

    return save


@pytest.fixture(scope="session")
def number_corpus(tmp_path_factory):
    """A TSV file of 120 pairs of random numbers."""
    path = tmp_path_factory.mktemp("corpus") / "train.tsv"
    generator = np.random.default_rng(5)
    path.write_text("".join(number_line(generator) for _ in range(120)))
    return path


@pytest.fixture(scope="session")
def number_store(tmp_path_factory, save_model, number_corpus):
    """A finished datastore of the tiny Marian model."""
    path = tmp_path_factory.mktemp("number-store") / "store"
    return Datastore.build(path, save_model(), number_corpus, index_recipe="Flat", combiner="fixed")


@pytest.fixture(scope="session")
def skip_store(tmp_path_factory, save_model, number_corpus):
    """A datastore with a learned combiner and subset search, which with `skip` searches for half of its own tokens."""
    path = tmp_path_factory.mktemp("skip-store") / "store"
    options = {"index_recipe": "Flat", "sentence_search": "bm25", "codes": "Flat"}
    store = Datastore.build(path, save_model(), number_corpus, **options)
    skip_half(store, store.load_model(device="cpu"))
    return store


@pytest.fixture
def knn_seq(capfd):
    """Run a command in this process; returns exit code, output and error output."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return run

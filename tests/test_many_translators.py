"""What is opened again and again is given back."""

from __future__ import annotations

import gc
import os
import sys
from typing import NamedTuple

import pytest
from tiny_models import make_model, number_pairs, number_store_of

from knn_seq.errors import KnnSeqError
from knn_seq.translator import Translator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read from /proc")

PAIRS = [tuple(" ".join(map(str, side[:-1])) for side in pair) for pair in number_pairs()]
SOURCES = [source for source, _ in PAIRS]
SHORT = {"beam_size": 1, "max_length": 4}
TRANSLATORS, SENTENCES = 200, 2000
LITTLE = 4 << 20  # bytes: what Python and malloc keep for themselves


class Held(NamedTuple):
    """What this process holds."""

    files: int
    threads: int
    maps: int
    hooks: int
    memory: int


@pytest.fixture(scope="module")
def model():
    return make_model("marian")


@pytest.fixture(scope="module")
def store(model, tmp_path_factory):
    built = number_store_of(model, tmp_path_factory.mktemp("many"))
    built.prepare_subset("bm25", model=model)
    return built


def held(model):
    gc.collect()
    with open("/proc/self/maps") as maps, open("/proc/self/statm") as pages:
        lines, resident = sum(1 for _ in maps), int(pages.read().split()[1])
    hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.network.modules())
    files, threads = (len(os.listdir(f"/proc/self/{name}")) for name in ("fd", "task"))
    return Held(files, threads, lines, hooks, resident * os.sysconf("SC_PAGE_SIZE"))


def assert_flat(before, after):
    assert after.files == before.files
    assert after.threads == before.threads
    assert after.hooks == before.hooks
    assert after.maps <= before.maps + 4  # malloc's own
    assert after.memory <= before.memory + LITTLE


def test_opened_and_closed_translators_leave_nothing(model, store):
    kinds = [
        {"store": store.path, "retriever": "full"},
        {"store": store.path, "retriever": "subset"},
        {"translation_memory": PAIRS, "temperature": 10.0},
    ]

    def use(number):
        with Translator(model=model, **kinds[number % len(kinds)], **SHORT) as translator:
            translator.translate(SOURCES[number % len(SOURCES)])

    for number in range(20):
        use(number)
    before = held(model)
    for number in range(20, TRANSLATORS):
        use(number)
    assert_flat(before, held(model))


def test_sentences_leave_nothing(model, store):
    with Translator(store.path, model=model, **SHORT) as translator:
        translator.translate(SOURCES * 5)
        before = held(model)
        for _ in range(SENTENCES // len(SOURCES)):
            translator.translate(SOURCES)
        assert_flat(before, held(model))


def test_a_closed_translator_holds_no_file_and_says_so(model, store):
    before = held(model)
    translator = Translator(store.path, model=model, retriever="subset", **SHORT)
    translator.translate(SOURCES[0])
    mapped = held(model).maps
    translator.close()
    after = held(model)
    assert (after.files, mapped > before.maps) == (before.files, True)
    assert after.maps < mapped
    with open("/proc/self/maps") as maps:
        assert str(store.path) not in maps.read()
    with pytest.raises(KnnSeqError, match="is closed"):
        translator.translate(SOURCES[0])


def test_a_datastore_that_was_given_stays_open(model, store):
    keys = store.keys
    with Translator(store, model=model, **SHORT) as translator:
        translator.translate(SOURCES[0])
    assert store.keys is keys
    store.close()
    assert "keys" not in vars(store)

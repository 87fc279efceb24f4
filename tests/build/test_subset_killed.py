"""What subset search needs is made together with the keys, once, and survives being killed."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import torch
from killed_build import build
from tiny_models import number_line

from knn_seq.datastore import Datastore
from knn_seq.models import Source, load_model
from knn_seq.models.fused import FusedEncoder
from knn_seq.sentences.open import open_sentences
from knn_seq.sentences.whitening import Whitening
from knn_seq.storage.flat import open_flat

PLACES = [
    ("encoder", "knn_seq.models.network/NetworkModel:keys", 9),
    ("encoder", "knn_seq.storage.shard/ShardWriter:sync", 7),
    ("encoder", "knn_seq.storage.keys/KeyWriter:finish", 2),
    ("encoder", "knn_seq.build.subset:store_codes", 1),
    ("encoder", "knn_seq.build.codes:_encode", 1),
    ("encoder", "knn_seq.storage.keys/KeyWriter:finish", 3),
    ("encoder", "knn_seq.build.sentence_vectors:_transform", 1),
    ("encoder", "knn_seq.sentences.whitening/Whitening:apply", 1),
    ("encoder", "knn_seq.storage.keys/KeyWriter:finish", 4),
    ("encoder", "knn_seq.build.sentences:build_index", 1),
    ("bm25", "knn_seq.storage.replacement:publish_folder", 1),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, save_model):
    folder = tmp_path_factory.mktemp("undisturbed")
    generator = np.random.default_rng(8)
    corpus = folder / "train.tsv"
    corpus.write_text("".join(number_line(generator) for _ in range(300)))
    stores = {}
    for search in ("encoder", "bm25"):
        assert build(folder / search, save_model(), corpus, sentence_search=search, codes="PQ16x4") == 0
        stores[search] = Datastore(folder / search)
    return save_model(), corpus, stores


@pytest.mark.parametrize(("search", "place", "count"), PLACES, ids=lambda value: str(value).rsplit(":")[-1])
def test_a_killed_build_resumes(search, place, count, undisturbed, tmp_path):
    model, corpus, stores = undisturbed
    options = {"sentence_search": search, "codes": "PQ16x4"}
    assert build(tmp_path / "store", model, corpus, place, count, **options) == -signal.SIGKILL
    assert build(tmp_path / "store", model, corpus, **options) == 0
    got, wanted = Datastore(tmp_path / "store"), stores[search]
    assert got.manifest.subset == wanted.manifest.subset
    for name in ("segments/1/keys.h5", "codes/codes.h5", *(["vectors/sentences.h5"] if search == "encoder" else [])):
        for dataset, rows in open_flat(wanted.path / name).items():
            np.testing.assert_array_equal(open_flat(got.path / name)[dataset], rows)
    loaded = load_model(wanted.model_settings)
    asked = [Source("5 6 7", [5, 6, 7, 2])]
    found = [open_sentences(store, loaded).nearest(asked, 20) for store in (got, wanted)]
    np.testing.assert_array_equal(*found)
    assert not list(got.path.glob(".*building")) + list(got.path.glob("*.partial"))


def test_vectors_made_together_with_the_keys_are_those_made_alone(undisturbed):
    _, _, stores = undisturbed
    store = stores["encoder"]
    model, whitening = load_model(store.model_settings), Whitening.load(store.whitening_path)
    for sentence in (0, 7, 299):
        vector = model.sentence_vectors([store.sources[sentence].tolist()])[0]
        wanted = whitening.apply((vector / vector.norm())[None])[0]
        assert torch.from_numpy(store.sentence_vectors[sentence].astype(np.float32)) @ wanted > 0.9999


def test_the_encoder_reads_each_sentence_once(tmp_path, undisturbed, monkeypatch):
    _, corpus, stores = undisturbed
    loaded = load_model(stores["encoder"].model_settings)
    read, encode = [], FusedEncoder.__call__
    loaded.network.get_encoder().register_forward_hook(lambda module, inputs, output: read.append(len(output[0])))
    monkeypatch.setattr(
        FusedEncoder, "__call__", lambda own, sources: read.append(len(sources)) or encode(own, sources)
    )
    options = {"calibration_sentences": 0, "batch_tokens": 200, "index_recipe": "Flat"}
    Datastore.build(tmp_path / "store", loaded, corpus, sentence_search="encoder", **options)
    assert 300 <= sum(read) <= 310  # some more to find dimensions

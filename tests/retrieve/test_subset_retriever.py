"""Subset kNN-MT on a small datastore."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from tiny_models import make_model

from knn_seq.build.subset import prepare_subset
from knn_seq.cli.main import main
from knn_seq.datastore import Datastore
from knn_seq.errors import KnnSeqError
from knn_seq.explain import explain
from knn_seq.models import Source, load_model
from knn_seq.retrieve.full import FullRetriever
from knn_seq.retrieve.subset import SubsetRetriever
from knn_seq.sentences.open import open_sentences
from knn_seq.sentences.whitening import Whitening
from knn_seq.settings import BuildSettings, SearchSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.translator import Translator

SENTENCES = 120
SOURCES = ["5 6 7 8", "40", "9 10 11 12 13 14", "33 34", "5 6 7 8 9 10 11 12 13"]


@pytest.fixture(scope="module")
def model(number_store):
    return load_model(number_store.model_settings)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, number_store, model):
    """A datastore by how it was prepared."""
    stores = {}

    def prepare(sentences="encoder", codes="Flat"):
        if (sentences, codes) not in stores:
            path = tmp_path_factory.mktemp("subset") / "store"
            shutil.copytree(number_store.path, path)
            assert prepare_subset(path, model, BuildSettings(sentence_search=sentences, codes=codes))
            stores[sentences, codes] = Datastore(path)
        return stores[sentences, codes]

    return prepare


def read(model, texts):
    return [Source(*pair) for pair in zip(texts, model.tokenizer.encode_sources(texts), strict=True)]


def test_all_sentences_and_exact_codes_are_a_full_search(prepared, model):
    store = prepared()
    settings = SearchSettings(subset_size=SENTENCES, k=12)
    full, subset = FullRetriever.open(store, model, settings), SubsetRetriever.open(store, model, settings)
    sentences = torch.tensor([0, 0, 1, 3, 3, 4])
    queries = torch.from_numpy(store.keys[[3, 50, 100, 200, 300, 400]].astype(np.float32)) + 0.01
    wanted = full.retrieve(queries, sentences, settings)
    found = subset.retrieve(queries, sentences, settings, subset.prepare(read(model, SOURCES), settings))
    torch.testing.assert_close(found.distances, wanted.distances, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.ids, wanted.ids)
    assert torch.equal(found.values, wanted.values)


def test_all_sentences_translate_as_a_full_search(prepared):
    store = prepared()
    options = {"k": 8, "temperature": 10.0, "weight": 0.7, "beam_size": 4}
    full = Translator(store, **options).translate(SOURCES)
    subset = Translator(store, retriever="subset", subset_size=SENTENCES, **options).translate(SOURCES)
    assert full == subset


@pytest.mark.parametrize("codes", ["Flat", "PQ16x4", "PQ8,Refine(keys)"])
def test_only_the_most_similar_sentences_are_searched(prepared, model, codes):
    store = prepared("encoder", codes)
    settings = SearchSettings(subset_size=5, k=200)
    retriever = SubsetRetriever.open(store, model, settings)
    subsets = retriever.prepare(read(model, SOURCES), settings)
    vectors = torch.nn.functional.normalize(model.sentence_vectors([s.tokens for s in read(model, SOURCES)]), dim=1)
    vectors = Whitening.load(store.whitening_path).apply(vectors)
    similar = (vectors @ torch.from_numpy(store.sentence_vectors.astype(np.float32)).T).topk(5).indices
    queries = torch.from_numpy(store.keys[:5].astype(np.float32))
    found = retriever.retrieve(queries, torch.arange(5), settings, subsets)
    for row in range(5):
        sentences, _ = store.locate(found.ids[row])
        assert set(sentences[sentences >= 0]) == set(similar[row].tolist())
        assert found.found[row].sum() == sum(len(store.values[s]) for s in similar[row].tolist())


def test_plain_distances_find_the_sentences_of_the_published_method(prepared, model):
    store, whitened = prepared("encoder:l2"), prepared("encoder")
    sources = read(model, SOURCES)
    states = model.sentence_vectors([source.tokens for source in sources])
    stored = model.sentence_vectors([source.tolist() for source in store.sources])
    np.testing.assert_allclose(store.sentence_vectors, stored.numpy(), atol=2e-3)  # as they are, in float16
    nearest = torch.cdist(states, torch.from_numpy(store.sentence_vectors.astype(np.float32))).argsort()[:, :5]
    found, others = (open_sentences(each, model).nearest(sources, 5) for each in (store, whitened))
    np.testing.assert_array_equal(found, nearest.numpy())
    assert (found != others).any()


@pytest.mark.parametrize("sentences", ["encoder", "bm25"])
def test_a_sentence_is_translated_the_same_in_any_batch(prepared, sentences):
    store = prepared(sentences, "PQ16x4,Refine(keys)")
    translator = Translator(store, retriever="subset", subset_size=20, k=8, temperature=10.0, weight=0.8, beam_size=3)
    together = translator.translate(SOURCES, batch_size=5)
    assert together == [translator.translate([source])[0] for source in SOURCES]
    assert together != translator.translate(SOURCES, weight=0.0)


def test_a_sentence_unlike_all_others_is_left_to_the_model(prepared):
    translator = Translator(prepared("bm25"), retriever="subset", weight=0.9)
    assert translator.translate(["?"]) == translator.translate(["?"], weight=0.0)


def test_explanations_name_the_sentences_of_the_subset(prepared, model):
    store = prepared("bm25", "PQ16x4,Refine(keys)")
    translator = Translator(store, retriever="subset", subset_size=3, k=8, temperature=10.0, weight=0.8)
    [translation] = translator.translate(SOURCES[:1])
    [explanation] = explain(translator, [translation])
    retriever = translator.decoder.retriever(translator.decoder.settings())
    allowed = set(retriever.sentences.nearest(read(model, SOURCES[:1]), 3)[0].tolist())
    neighbours = [neighbour for token in explanation.tokens for neighbour in token.neighbours]
    assert neighbours
    assert {neighbour.sentence for neighbour in neighbours} <= allowed
    for neighbour in neighbours:
        assert store.values.offsets[neighbour.sentence] + neighbour.position == neighbour.entry


@pytest.mark.parametrize("kind", ["t5", "fsmt", "gpt2", "llama"])
def test_every_kind_of_model_finds_sentences_by_its_own_states(kind, number_corpus, tmp_path):
    model = make_model(kind)
    options = {"sentence_search": "encoder", "codes": "PQ16x4", "index_recipe": "Flat", "calibration_sentences": 0}
    store = Datastore.build(tmp_path / "store", model, number_corpus, **options)
    assert store.sentence_vectors.shape[0] == SENTENCES
    translator = Translator(store, model, retriever="subset", subset_size=9, temperature=50.0, weight=0.9, max_length=9)
    together = translator.translate(SOURCES)
    assert together == [translator.translate([source])[0] for source in SOURCES]
    assert together != translator.translate(SOURCES, weight=0.0)


def test_an_ensemble_asks_its_first_model_for_sentences(prepared, save_model):
    store = prepared()
    translator = Translator(store, ensemble=[save_model("marian", 1)], retriever="subset", subset_size=9, weight=0.9)
    assert translator.translate(SOURCES) != translator.translate(SOURCES, weight=0.0)


def test_a_datastore_that_is_not_prepared_says_how(number_store):
    with pytest.raises(KnnSeqError, match="not prepared for subset search"):
        Translator(number_store, retriever="subset").translate(["5 6"])


def test_an_unknown_sentence_search_is_refused_before_anything_is_lost(prepared, model):
    store = prepared()
    with pytest.raises(KnnSeqError, match="no sentence search 'nonsense': choose from bm25, encoder"):
        prepare_subset(store.path, model, BuildSettings(sentence_search="nonsense"))
    assert DatastoreFolder(store.path).prepared_subset().sentence_search == "encoder"


def test_another_preparation_replaces_the_first(prepared, number_store, model, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(prepared().path, path)
    wanted = BuildSettings(sentence_search="tfidf", codes="PQ16x4")
    assert prepare_subset(path, model, wanted)
    assert not prepare_subset(path, model, wanted)
    assert not list(path.rglob("sentences.h5"))
    assert Translator(path, retriever="subset", subset_size=4).translate(["5 6 7"])
    assert prepare_subset(path, model, BuildSettings(sentence_search="encoder", sentence_index_recipe="torch"))
    assert DatastoreFolder(path).prepared_subset().sentence_index.type == "torch"
    assert not list(path.rglob("codes.h5"))
    assert Translator(path, retriever="subset", subset_size=4).translate(["5 6 7"])


def test_the_command_line(number_store, tmp_path, capsys, monkeypatch):
    path = tmp_path / "store"
    shutil.copytree(number_store.path, path)
    assert main(["index", str(path), "--codes", "PQ8"]) == 2
    assert "give --sentence-search, too" in capsys.readouterr().err
    assert main(["index", str(path), "--sentence-search", "--codes", "PQ16x4", "-q"]) == 0
    assert main(["info", str(path)]) == 0
    assert "sentences by encoder, codes PQ16x4" in capsys.readouterr().out
    source = tmp_path / "in.txt"
    source.write_text("5 6 7\n\n8 9\n")
    options = ["--retriever", "subset", "--subset-size", "7", "--input", str(source), "-q"]
    assert main(["translate", str(path), *options]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    assert main(["translate", str(path), "--retriever", "subset", "--subset-size", "0", "-q"]) == 2
    assert "at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("codes", ["Flat", "PQ4x4,Refine(keys)"])
def test_neighbours_say_that_they_are_complete_only_if_they_are(codes, prepared, model):
    store = prepared(codes=codes)
    settings = {k: SearchSettings(subset_size=1, k=k) for k in (1, len(store), len(store) + 1)}
    subset = SubsetRetriever.open(store, model, settings[1])
    full = FullRetriever.open(store, model, settings[1])
    queries, sentences = torch.from_numpy(store.keys[:3].astype(np.float32)), torch.zeros(3, dtype=torch.int64)
    ready = subset.prepare(read(model, SOURCES[:1]), settings[1])
    found = [subset.retrieve(queries, sentences, settings[k], ready) for k in (1, len(store))]
    found += [full.retrieve(queries, sentences, each) for each in settings.values()]
    for neighbours in found:
        assert neighbours.found.all() or not neighbours.complete
    assert [neighbours.complete for neighbours in found[2:]] == [True, True, False]
    assert found[0].complete or codes == "Flat"

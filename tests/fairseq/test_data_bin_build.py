"""Datastores built from data-bin folders, without fairseq."""

from __future__ import annotations

import numpy as np
import pytest
from fairseq_files import (
    EOS,
    OPTIONS,
    TARGET_WORDS,
    make_weights,
    words,
    write_checkpoint,
    write_dictionary,
    write_tokens,
)

from knn_seq import Datastore, Translator
from knn_seq.corpus import open_corpus
from knn_seq.errors import InvalidSetting, ModelMismatch
from knn_seq.models import TokenPair, load_model
from knn_seq.settings import ModelSettings
from knn_seq.storage.translation_memory import TranslationMemory


@pytest.mark.parametrize("normalize_before", [False, True])
def test_build_and_translate(normalize_before, corpus, knn_seq, tmp_path):
    folder, pairs = corpus
    changes = {"encoder_normalize_before": normalize_before, "decoder_normalize_before": normalize_before}
    path = write_checkpoint(tmp_path / "checkpoint", changes)
    for name in ("dict.xx.txt", "dict.yy.txt"):  # the datastore must remember where they are
        (path.parent / name).unlink()
    options = ("--model", f"fairseq:{path}", "--index-recipe", "Flat", "--key-dtype", "float32", "-q")
    code, _, error = knn_seq("build", tmp_path / "store", "--corpus", folder / "data-bin", *options)
    assert code == 0, error
    store = Datastore(tmp_path / "store")
    assert store.manifest.counts.sentences == len(pairs)
    assert store.values.items[:].tolist() == [token for _, target in pairs for token in target]
    assert store.model_settings.data == str(folder / "data-bin")
    assert store.manifest.corpus.description == "train of data-bin (xx-yy)"
    inferred = {"source_lang": "xx", "target_lang": "yy", "source_prefix": []}
    assert store.manifest.corpus.identity["inferred"] == inferred
    keys = load_model(store.model_settings).keys([TokenPair(*pair) for pair in pairs[:4]]).numpy()
    np.testing.assert_allclose(store.keys[: len(keys)], keys, atol=2e-5)

    text = ("--corpus", folder / "train.tsv", "--data", folder / "data-bin")
    code, _, error = knn_seq("build", tmp_path / "text-store", *text, *options)
    assert code == 0, error
    np.testing.assert_allclose(Datastore(tmp_path / "text-store").keys[:], store.keys[:], atol=2e-5)

    # With the neighbours alone, the stored translation of a stored sentence comes out.
    translator = Translator(store, k=1, weight=1.0, temperature=1.0, beam_size=1, device="cpu")
    source, target = words(pairs[7])
    assert str(translator.translate(source)) == target


def test_another_split(corpus, tmp_path):
    folder, pairs = corpus
    path = write_checkpoint(tmp_path / "checkpoint")
    store = Datastore.build(
        tmp_path / "store",
        f"fairseq:{path}",
        folder / "data-bin",
        corpus_options={"split": "valid"},
        index_recipe="Flat",
        calibration_sentences=0,
    )
    assert list(store.texts) == [words(pair) for pair in pairs[:9]]
    assert store.manifest.corpus.identity["options"]["split"] == "valid"


def test_a_data_bin_is_a_translation_memory_too(corpus):
    folder, pairs = corpus
    assert list(TranslationMemory.open(folder / "data-bin").texts) == [words(pair) for pair in pairs]
    swapped = {"source_lang": "yy", "target_lang": "xx"}
    assert TranslationMemory.open(folder / "data-bin", options=swapped).texts[3] == words(pairs[3])[::-1]


def test_dictionaries_and_languages_are_the_models(corpus, tmp_path, save_model):
    folder, _ = corpus
    path = write_checkpoint(tmp_path / "checkpoint")
    model = load_model(ModelSettings(f"fairseq:{path}", device="cpu"))
    opened = open_corpus(folder / "data-bin", options={"source_lang": "yy"})
    with pytest.raises(InvalidSetting, match="source_lang=yy is not xx, the language of fairseq:"):
        opened.bind(model)
    write_dictionary(path.parent / "dict.yy.txt", TARGET_WORDS[::-1])
    for name, sentence in (
        (f"fairseq:{path}", r"data-bin/dict\.yy\.txt is not the dictionary of"),
        (save_model(), "A data-bin folder is for fairseq's models"),
    ):
        with pytest.raises(ModelMismatch, match=sentence):
            Datastore.build(tmp_path / "store", name, folder / "data-bin")
        assert not (tmp_path / "store").exists()


def test_a_multilingual_model_tells_languages_and_language_token(tmp_path):
    task = {
        "task": "translation_multi_simple_epoch",
        "share_all_embeddings": True,
        "source_lang": None,
        "target_lang": None,
        "encoder_langtok": "src",
        "decoder_langtok": True,
        "langs": ["de", "en", "fr"],
    }
    rows = 4 + len(TARGET_WORDS) + 3
    path = write_checkpoint(tmp_path / "model", task, make_weights(OPTIONS | task, (rows, rows)), style="args")
    folder = tmp_path / "data-bin"
    folder.mkdir()
    for language in ("de", "en", "fr"):
        write_dictionary(folder / f"dict.{language}.txt", TARGET_WORDS)
    for pair, tokens in (("de-en", [4, EOS]), ("de-fr", [9, 8, EOS])):
        for language in pair.split("-"):
            write_tokens(folder / f"train.{pair}.{language}", [tokens, tokens])
    corpus = open_corpus(folder)
    with pytest.raises(InvalidSetting, match=r"de-en and de-fr found.*--corpus-option source_lang=de"):
        corpus.describe()
    settings = {"source_lang": "fr", "target_lang": "de", **corpus.model_options()}
    corpus.bind(load_model(ModelSettings(f"fairseq:{path}", device="cpu", **settings)))
    assert corpus.describe() == "train of data-bin (fr-de)"
    french = rows - 1
    assert [unit.source_tokens for unit in corpus] == [(french, 9, 8, EOS)] * 2
    assert corpus.identity()["inferred"]["source_prefix"] == [french]

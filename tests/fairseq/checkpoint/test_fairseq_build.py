"""Datastores built with a checkpoint, from text and from data-bin folders."""

from __future__ import annotations

import numpy as np
import pytest
from fairseq_files import words, write_checkpoint

from knn_seq.cli.main import main
from knn_seq.datastore import Datastore
from knn_seq.errors import InvalidSetting
from knn_seq.models import TokenPair, load_model
from knn_seq.settings import ModelSettings
from knn_seq.translator import Translator

VARIANTS = {"fsmt": {}, "own": {"encoder_normalize_before": True, "decoder_normalize_before": True}}
OPTIONS = ["--index-recipe", "Flat", "-q", "--key-dtype", "float32", "--sentence-search", "encoder"]


@pytest.mark.parametrize("given", ["train.tsv", "data-bin"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_build_and_translate(variant, given, corpus, tmp_path, capsys):
    folder, pairs = corpus
    path = write_checkpoint(tmp_path / "checkpoint", VARIANTS[variant])
    for name in ("dict.xx.txt", "dict.yy.txt"):  # the datastore must remember where they are
        (path.parent / name).unlink()
    store, data = tmp_path / "store", str(folder / "data-bin")
    arguments = ["--model", f"fairseq:{path}", "--data", data, "--corpus", str(folder / given), *OPTIONS]
    assert main(["build", str(store), *arguments]) == 0, capsys.readouterr().err
    datastore = Datastore(store)
    assert datastore.manifest.counts.sentences == len(pairs)
    assert datastore.values.items[:].tolist() == [token for _, target in pairs for token in target]
    assert datastore.model_settings.data == data
    model = load_model(datastore.model_settings)
    keys = model.keys([TokenPair(*pair) for pair in pairs[:4]]).numpy()
    np.testing.assert_allclose(datastore.keys[: len(keys)], keys, atol=2e-5)

    # With the neighbours alone, the stored translation of a stored sentence comes out.
    translator = Translator(store, k=1, weight=1.0, temperature=1.0, beam_size=1, device="cpu")
    source, target = words(pairs[7])
    assert translator.translate(source) == target


@pytest.mark.parametrize("known_by", ["names", "sizes"])
def test_languages_that_the_data_tells_are_recorded(known_by, corpus, knn_seq, tmp_path):
    folder, _ = corpus
    path = write_checkpoint(tmp_path / "checkpoint", {"source_lang": None, "target_lang": None})
    data = folder / "data-bin"
    if known_by == "sizes":
        data = tmp_path / "dictionaries"
        data.mkdir()
    for name in ("dict.xx.txt", "dict.yy.txt"):
        path.parent.joinpath(name).rename(data / name)
    build = ("build", tmp_path / "store", "--model", f"fairseq:{path}", "--corpus", folder / "train.tsv", *OPTIONS)
    code, _, error = knn_seq(*build)
    assert code == 2
    assert "give the data-bin folder of its training with --data, or --source-lang and --target-lang" in error
    for languages in ((), ("--source-lang", "xx", "--target-lang", "yy")):  # the second finds a finished build
        code, _, error = knn_seq(*build, "--data", data, *languages)
        assert code == 0, error
    model = Datastore(tmp_path / "store").manifest.model
    assert (model.source_lang, model.target_lang) == ("xx", "yy")
    store = tmp_path / "of-data-bin"
    for languages in ((), ("--source-lang", "xx", "--target-lang", "yy")):
        code, _, error = knn_seq(*build[:1], store, *build[2:5], folder / "data-bin", *OPTIONS, *languages)
        assert code == 0, error


def test_dictionaries_of_one_size_tell_no_direction(tmp_path):
    shared = {"source_lang": None, "target_lang": None, "share_all_embeddings": True}
    path = write_checkpoint(tmp_path, shared)
    with pytest.raises(InvalidSetting, match="give the data-bin folder"):
        load_model(ModelSettings(f"fairseq:{path}"))
    (tmp_path / "valid.yy-xx.xx.idx").touch()
    (tmp_path / "notes.of-mine.txt").touch()
    assert load_model(ModelSettings(f"fairseq:{path}")).settings.target_lang == "xx"

"""Datastores built with a checkpoint, from text and from data-bin folders."""

from __future__ import annotations

import numpy as np
import pytest
from fairseq_files import EOS, TARGET_WORDS, write_checkpoint, write_data_bin, write_dictionary

from knn_seq.cli.main import main
from knn_seq.datastore import Datastore
from knn_seq.models import TokenPair, load_model
from knn_seq.translator import Translator

VARIANTS = {"fsmt": {}, "own": {"encoder_normalize_before": True, "decoder_normalize_before": True}}
OPTIONS = ["--index-recipe", "Flat", "-q", "--key-dtype", "float32", "--sentence-search", "encoder"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Random pairs as a data-bin folder and as text."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = np.random.default_rng(5)
    pairs = [
        (
            [*generator.integers(4, 37, generator.integers(3, 8)).tolist(), EOS],
            [*generator.integers(4, 41, generator.integers(3, 8)).tolist(), EOS],
        )
        for _ in range(60)
    ]
    write_data_bin(folder / "data-bin", pairs)
    with open(folder / "train.tsv", "w") as file:
        for source, target in pairs:
            sides = (" ".join(f"s{t - 4}" for t in source[:-1]), " ".join(f"t{t - 4}" for t in target[:-1]))
            print(*sides, sep="\t", file=file)
    return folder, pairs


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
    source, target = (" ".join(f"{name}{t - 4}" for t in side[:-1]) for name, side in zip("st", pairs[7], strict=True))
    assert translator.translate(source) == target


def test_a_data_bin_with_other_dictionaries(corpus, tmp_path, capsys):
    folder, _ = corpus
    path = write_checkpoint(tmp_path / "checkpoint")
    write_dictionary(path.parent / "dict.yy.txt", TARGET_WORDS[::-1])
    build = ["build", str(tmp_path / "store"), "--model", f"fairseq:{path}", "-q"]
    assert main([*build, "--corpus", str(folder / "data-bin")]) == 2
    assert "dict.yy.txt is not the dictionary of" in capsys.readouterr().err

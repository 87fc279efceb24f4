"""Where the subword codes of a checkpoint are found, and what is said where they are not."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import sentencepiece
from fairseq_files import EOS, OPTIONS, make_weights, words, write_checkpoint, write_data_bin, write_dictionary

from knn_seq.datastore import Datastore
from knn_seq.errors import DamagedFile, NotFound, UnknownTokens
from knn_seq.fairseq.checkpoint.subword_files import NAMES
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings

PIECES = ["low@@", "er", "est", "lo@@", "w"]
CODES = "#version: 0.2\nl o\nlo w\ne r</w>\ne s\nes t</w>\n"
OTHER_CODES = "#version: 0.2\nx y\n"


@pytest.fixture
def checkpoint(tmp_path):
    """A model of these pieces on both sides, trained with the data in data/bin, without codes."""
    data = tmp_path / "data" / "bin"
    data.mkdir(parents=True)
    options, rows = {"data": str(data)}, len(PIECES) + 4
    path = write_checkpoint(tmp_path / "model", options, make_weights(OPTIONS, (rows, rows)), style="args")
    for language in ("xx", "yy"):
        write_dictionary(path.parent / f"dict.{language}.txt", PIECES)
    return path


def tokens(path, text="lower lowest", **settings):
    return load_model(ModelSettings(f"fairseq:{path}", device="cpu", **settings)).tokenizer.encode_targets([text])[0]


@pytest.mark.parametrize(
    "name",
    [
        "code",
        "codes",
        "code.txt",
        "bpecodes",
        "bpe.code",
        "bpe.codes",
        "bpe.32000",
        "codes.40k",
        "wmt.codes",
        "bpe.yy",
        "code.yy",
        "yy.codes",
    ],
)
def test_codes_under_usual_names(name, checkpoint):
    (checkpoint.parent / name).write_text(CODES)
    assert tokens(checkpoint) == [4, 5, 4, 6, EOS]


@pytest.mark.parametrize(
    "name", ["sentencepiece.bpe.model", "spm.model", "spm.yy.model", "yy.spm", "mc4.bpe.model", "codes"]
)
def test_sentencepiece_models_are_told_by_what_they_hold(name, checkpoint):
    trained = io.BytesIO()
    sentences = [f"lower and lowest {number}" for number in range(20)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=trained, vocab_size=24, minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    pieces = processor.encode("lower lowest", out_type=str)
    write_dictionary(checkpoint.parent / "dict.yy.txt", [*dict.fromkeys(pieces), *(f"p{i}" for i in range(9))][:5])
    known = set(pieces[:5])
    (checkpoint.parent / name).write_bytes(trained.getvalue())
    found = tokens(checkpoint)
    assert [token != 3 for token in found[:-1]] == [piece in known for piece in pieces]


@pytest.mark.parametrize("where", ["data/bin", "data", "given", "given/bin"])
def test_codes_in_and_beside_the_data(where, checkpoint, tmp_path):
    (tmp_path / where).mkdir(parents=True, exist_ok=True)
    (tmp_path / "given" / "bin").mkdir(parents=True, exist_ok=True)
    (tmp_path / where / "code").write_text(CODES)
    assert tokens(checkpoint, data=str(tmp_path / "given" / "bin")) == [4, 5, 4, 6, EOS]


@pytest.mark.parametrize("option", ["bpe_codes", "sentencepiece_model", "sentencepiece_vocab"])
def test_codes_that_options_name(option, checkpoint):
    (checkpoint.parent / "codes").write_text(OTHER_CODES)
    (checkpoint.parent / "prep").mkdir()
    (checkpoint.parent / "prep" / "merges").write_text(CODES)
    for given in ("prep/merges", str(checkpoint.parent / "prep" / "merges")):
        (checkpoint.parent / "fairseq.json").write_text(json.dumps({option: given}))
        assert tokens(checkpoint) == [4, 5, 4, 6, EOS]
    (checkpoint.parent / "merges").write_text(CODES)
    (checkpoint.parent / "fairseq.json").write_text(json.dumps({option: "/where/it/was/trained/merges"}))
    assert tokens(checkpoint) == [4, 5, 4, 6, EOS]


def test_the_documentation_has_all_names():
    text = (Path(__file__).parents[3] / "docs" / "fairseq.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"`{name.format(language='XX').removesuffix('[0-9]*')}`" in text


def test_a_side_has_its_own_codes(checkpoint):
    (checkpoint.parent / "codes").write_text(OTHER_CODES)
    (checkpoint.parent / "codes.yy").write_text(CODES)
    model = load_model(ModelSettings(f"fairseq:{checkpoint}", device="cpu"))
    assert model.tokenizer.encode_targets(["lower"]) == [[4, 5, EOS]]
    assert set(model.tokenizer.encode_sources(["lower"])[0]) == {3, EOS}


def test_what_only_looks_like_codes(checkpoint):
    (checkpoint.parent / "language.model").write_bytes(b"some other binary file\0\1\2")
    (checkpoint.parent / "notes.code").write_text("print('hello, world, this is no merge')\n")
    (checkpoint.parent / "one.codes").write_text(OTHER_CODES)
    (checkpoint.parent / "two.codes").write_text(OTHER_CODES)
    assert tokens(checkpoint, "low@@ er") == [4, 5, EOS]  # as if nothing was there
    (checkpoint.parent / "codes").write_text("this one has to hold codes\n")
    with pytest.raises(DamagedFile, match="Line 1 of the BPE codes"):
        tokens(checkpoint)


def test_named_codes_that_are_not_there(checkpoint):
    (checkpoint.parent / "fairseq.json").write_text(json.dumps({"bpe": "sentencepiece"}))
    with pytest.raises(
        NotFound, match=r"sentencepiece file of the source side was not found in .*spm\.model, or name it"
    ):
        tokens(checkpoint)


def test_text_that_needs_codes_which_are_not_there_is_not_built(checkpoint, tmp_path, knn_seq):
    (tmp_path / "train.tsv").write_text("lower lowest\tlowest lower\n" * 9)
    build = ("build", tmp_path / "store", "--model", f"fairseq:{checkpoint}", "--corpus", tmp_path / "train.tsv", "-q")
    code, _, error = knn_seq(*build)
    assert code == 2
    assert "67% of the target tokens of train.tsv are unknown to the model: no subword codes were found in" in error
    assert all(name in error for name in (str(checkpoint.parent), "bpecodes, ", "*.codes", "*.model", "fairseq.json"))
    (checkpoint.parent / "bpe.code").write_text(CODES)
    code, _, error = knn_seq(*build, "--index-recipe", "Flat")
    assert code == 0, error
    assert Datastore(tmp_path / "store").values[0].tolist() == [4, 6, 4, 5, EOS]


def test_codes_of_another_model_are_named(checkpoint, tmp_path):
    (checkpoint.parent / "codes").write_text(OTHER_CODES)
    with pytest.raises(
        UnknownTokens, match=r"check that .*model/codes belongs to the model.*\"moses\" in fairseq\.json"
    ):
        Datastore.build(tmp_path / "store", f"fairseq:{checkpoint}", [("lower", "lower")])


def test_a_data_bin_of_other_text(tmp_path, knn_seq):
    path = write_checkpoint(tmp_path / "model")
    data = write_data_bin(tmp_path / "bin", [([4, 5, EOS], [3, 3, 7, EOS])])
    build = (
        "build",
        tmp_path / "store",
        "--model",
        f"fairseq:{path}",
        "--corpus",
        data,
        "-q",
        "--index-recipe",
        "Flat",
    )
    code, _, error = knn_seq(*build)
    assert code == 2
    assert "50% of the target tokens of train of bin (xx-yy) are unknown to the model: fairseq-preprocess" in error
    assert knn_seq(*build, "--allow-unknown")[0] == 0
    assert Datastore(tmp_path / "store").texts[0][0] == words(([4, 5, EOS], []))[0]

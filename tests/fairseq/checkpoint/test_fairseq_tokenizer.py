"""Text to a checkpoint's tokens and back."""

from __future__ import annotations

import io
import json
import os
import pickle

import pytest
import sentencepiece
import torch
from fairseq_files import OPTIONS, make_weights, write_checkpoint, write_dictionary

from knn_seq.errors import KnnSeqError
from knn_seq.fairseq.checkpoint.subwords import BytePairs
from knn_seq.fairseq.dictionary import Dictionary
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings

# The example of Sennrich, Haddow and Birch (2016): learned from low, lowest, newer, wider.
FIRST_VERSION = "r </w>\nl o\nlo w\ne r</w>\n"
SECOND_VERSION = "#version: 0.2\nl o\nlo w\ne r</w>\ne s\nes t</w>\n"
FAST = "l o 20\nlo w 15\ne r</w> 12\ne s 9\nes t</w> 9\n"


@pytest.fixture
def byte_pairs(tmp_path):
    def make(text):
        (tmp_path / "codes").write_text(text, encoding="utf-8")
        return BytePairs(tmp_path / "codes")

    return make


def test_the_published_example(byte_pairs):
    assert byte_pairs(FIRST_VERSION).split("lower") == ["low@@", "er"]


@pytest.mark.parametrize("codes", [SECOND_VERSION, FAST])
def test_ends_of_words_belong_to_their_last_letter(codes, byte_pairs):
    bpe = byte_pairs(codes)
    pieces = ["low@@", "est", "low@@", "er", "lo@@", "w", "est", "l@@", "o", "w", "x"]
    assert bpe.split("lowest lower  low est lo w x") == pieces


@pytest.mark.parametrize("codes", [FIRST_VERSION, SECOND_VERSION, FAST])
@pytest.mark.parametrize("text", ["lower lowest", "a", "ärger 東京 low", "lololow eses er r"])
def test_joining_undoes_splitting(codes, text, byte_pairs):
    bpe = byte_pairs(codes)
    assert bpe.join(bpe.split(text)) == text
    assert pickle.loads(pickle.dumps(bpe)).split(text) == bpe.split(text)


def test_the_first_of_equal_merges_counts_and_merges_go_from_left_to_right(byte_pairs):
    assert byte_pairs("#version: 0.2\na a\n").split("aaaab") == ["aa@@", "aa@@", "b"]
    assert byte_pairs("#version: 0.2\na a\n").split("aaab") == ["aa@@", "a@@", "b"]
    # "b c" comes before "a b" the first time that it is listed.
    assert byte_pairs("#version: 0.2\nb c\na b\nb c\n").split("abcd") == ["a@@", "bc@@", "d"]


def test_codes_that_are_no_codes(byte_pairs):
    with pytest.raises(KnnSeqError, match="Line 2 of the BPE codes"):
        byte_pairs("a b\nnonsense\n")


def test_raw_text_goes_through_codes_beside_the_checkpoint(tmp_path):
    words = ["low@@", "er", "est", "new@@", "lo@@", "w"]
    model = _model(tmp_path, words, {"codes": SECOND_VERSION})
    assert model.tokenizer.encode_sources(["lower lowest", "low zz"]) == [[4, 5, 4, 6, 2], [8, 9, 3, 3, 2]]
    assert model.tokenizer.encode_targets(["lower"]) == [[4, 5, 2]]
    assert model.tokenizer.decode([4, 5, 4, 6, 2]) == "lower lowest"
    assert model.tokenizer.decode([4, 5, 3]) == "lower <unk>"
    assert model.tokenizer.token(4) == "low@@"
    again = pickle.loads(pickle.dumps(model.tokenizer))
    assert again.encode_sources(["lower lowest"]) == [[4, 5, 4, 6, 2]]


def test_text_without_bpe_is_taken_as_tokenized(tmp_path):
    model = _model(tmp_path, ["low@@", "er", "a"], {})
    assert model.tokenizer.encode_sources(["low@@ er  a", ""]) == [[4, 5, 6, 2], [2]]
    assert model.tokenizer.decode([4, 5, 6, 2]) == "lower a"
    assert model.tokenizer.encode_targets(["a </s> <pad> a"]) == [[6, 3, 3, 6, 2]]  # no text can end a sentence early


def test_sentencepiece(tmp_path):
    trained = io.BytesIO()
    sentences = [f"the house of number {number} is on the hill" for number in range(50)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=trained, vocab_size=36, hard_vocab_limit=False, minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    pieces = [processor.id_to_piece(number) for number in range(3, len(processor))]
    model = _model(tmp_path, pieces, {"spm.model": trained.getvalue()})
    text = "the hill of the house is on number 7"
    (tokens,) = model.tokenizer.encode_sources([text])
    assert [model.tokenizer.token(token) for token in tokens[:-1]] == processor.encode(text, out_type=str)
    assert model.tokenizer.decode(tokens) == text
    assert pickle.loads(pickle.dumps(model.tokenizer)).encode_targets([text]) == [tokens]


def test_moses(tmp_path):
    words = ["&quot;", "Well", ",", "it", "&apos;s", "low", "@-@", "cost", "."]
    options = {"tokenizer": "moses", "source_lang": "en", "target_lang": "en"}
    model = _model(tmp_path, words, {"fairseq.json": json.dumps(options)}, {"source_lang": "en", "target_lang": "en"})
    text = 'Well, it\'s "low-cost".'
    (tokens,) = model.tokenizer.encode_sources([text])
    spelled = [model.tokenizer.token(token) for token in tokens]
    assert spelled == ["Well", ",", "it", "&apos;s", "&quot;", "low", "@-@", "cost", "&quot;", ".", "</s>"]
    assert model.tokenizer.decode(tokens) == text
    assert pickle.loads(pickle.dumps(model.tokenizer)).encode_targets([text]) == [tokens]


@pytest.mark.parametrize(("option", "value"), [("bpe", "gpt2"), ("tokenizer", "nltk")])
def test_ways_of_tokenizing_that_are_not_supported_are_named(option, value, tmp_path):
    with pytest.raises(KnnSeqError, match=rf"'{option}' \({value}\)"):
        _model(tmp_path, ["a"], {}, {option: value})


def test_bpe_that_the_options_name_but_nobody_finds(tmp_path):
    with pytest.raises(KnnSeqError, match="The fastbpe file of the source side was not found"):
        _model(tmp_path, ["a"], {}, {"bpe": "fastbpe", "bpe_codes": "/nowhere/codes"})


def test_dictionaries_may_lie_elsewhere(tmp_path):
    path = write_checkpoint(tmp_path / "checkpoints")
    data = tmp_path / "data"
    data.mkdir()
    for name in ("dict.xx.txt", "dict.yy.txt"):
        (path.parent / name).rename(data / name)
    with pytest.raises(
        KnnSeqError, match=r"dict\.xx\.txt was not found in .*checkpoints nor in /nowhere/data-bin.*--data"
    ):
        load_model(ModelSettings(f"fairseq:{path}"))
    given = load_model(ModelSettings(f"fairseq:{path}", data=str(data)))
    state = torch.load(path, weights_only=False)
    state["cfg"]["task"]["data"] = f"{data}{os.pathsep}/another/shard"
    torch.save(state, path)
    stored = load_model(ModelSettings(f"fairseq:{path}"))
    assert given.fingerprint == stored.fingerprint


def test_a_dictionary_of_another_size(tmp_path):
    path = write_checkpoint(tmp_path)
    write_dictionary(tmp_path / "dict.yy.txt", ["a", "b"])
    with pytest.raises(KnnSeqError, match=r"dict\.yy\.txt has 6 symbols and the model's target side embeds 41"):
        load_model(ModelSettings(f"fairseq:{path}"))


def test_languages_that_the_checkpoint_does_not_tell(tmp_path):
    path = write_checkpoint(tmp_path, {"source_lang": None, "target_lang": None})
    write_dictionary(tmp_path / "dict.zz.txt", ["a"])
    with pytest.raises(KnnSeqError, match="with --data, or --source-lang and --target-lang"):
        load_model(ModelSettings(f"fairseq:{path}"))
    model = load_model(ModelSettings(f"fairseq:{path}", source_lang="xx", target_lang="yy"))
    assert model.tokenizer.encode_sources(["s0 s1"]) == [[4, 5, 2]]
    assert model.tokenizer.encode_targets(["t0 s1"]) == [[4, 3, 2]]
    (tmp_path / "train.xx-yy.xx.idx").touch()
    assert load_model(ModelSettings(f"fairseq:{path}")).fingerprint == model.fingerprint


def test_another_language_than_the_checkpoint_has(tmp_path):
    path = write_checkpoint(tmp_path)
    with pytest.raises(KnnSeqError, match="is xx, not de"):
        load_model(ModelSettings(f"fairseq:{path}", source_lang="de"))


def test_folders_hold_a_checkpoint(tmp_path):
    path = write_checkpoint(tmp_path, name="checkpoint_best.pt")
    from_folder = load_model(ModelSettings(f"fairseq:{tmp_path}"))
    assert from_folder.fingerprint == load_model(ModelSettings(f"fairseq:{path}")).fingerprint


def test_the_fingerprint_knows_both_dictionaries(tmp_path):
    path = write_checkpoint(tmp_path)
    first = load_model(ModelSettings(f"fairseq:{path}")).fingerprint
    symbols = Dictionary.read(tmp_path / "dict.xx.txt").symbols[4:]
    write_dictionary(tmp_path / "dict.xx.txt", [*symbols[1:], symbols[0]])
    second = load_model(ModelSettings(f"fairseq:{path}")).fingerprint
    assert first.weights == second.weights
    assert first.vocabulary != second.vocabulary


def _model(folder, words, files, options=None):
    """A model whose two sides have these words."""
    options = options or {}
    rows = len(words) + 4
    path = write_checkpoint(folder, options, make_weights(OPTIONS, (rows, rows)), style="args")
    for name in folder.glob("dict.*.txt"):
        write_dictionary(name, words)
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return load_model(ModelSettings(f"fairseq:{path}", device="cpu"))

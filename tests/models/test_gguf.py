"""A model in a file of llama.cpp, which is written here with the library that such files are made with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from knn_seq.errors import DamagedFile, InvalidSetting, MissingLibrary
from knn_seq.models import TokenPair, load_model
from knn_seq.models import gguf as gguf_files
from knn_seq.models.weight_files import stored_weights
from knn_seq.settings import DecodingSettings, ModelSettings

WIDTH, HEADS, LAYERS, INNER, WINDOW = 64, 2, 2, 96, 128
TOKENS = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "Ġ", "th", "he", "the"]
MERGES = ["t h", "h e", "th e"]
LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def path(network, tmp_path_factory):
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(WINDOW)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(network.config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(MERGES)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, weight in network.state_dict().items():
        writer.add_tensor(_name_in_file(name), _as_stored(name, weight).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _name_in_file(name):
    name = name.removesuffix(".weight")
    if name in WHOLE:
        return f"{WHOLE[name]}.weight"
    number, _, rest = name.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{LAYER[rest]}.weight"


def _as_stored(name, weight):
    """llama.cpp rotates neighbouring columns of queries and keys, Transformers those of the two halves."""
    if ".q_proj" in name or ".k_proj" in name:
        return weight.view(HEADS, 2, -1, WIDTH).transpose(1, 2).reshape(weight.shape).contiguous()
    return weight.contiguous()


def test_the_file_is_the_model(network, path):
    model = load_model(ModelSettings(str(path), prompt="{source}"))
    tokens = model.tokenizer.encode_text("the cat")
    assert tokens == [TOKENS.index(token) for token in ("the", "Ġ", "c", "a", "t")]
    assert model.window == WINDOW
    with torch.no_grad():
        logits = network(torch.tensor([tokens])).logits[0]
    scored = model.score([TokenPair(tokens[:2], tokens[2:])])
    torch.testing.assert_close(scored.log_probs, logits[1:-1].log_softmax(dim=-1), atol=1e-5, rtol=1e-5)
    [[best]] = model.generate([tokens], DecodingSettings(beam_size=1, max_length=4))
    assert best.tokens[0] == logits[-1].argmax().item()


def test_memory_is_at_least_that_of_the_file(path):
    assert stored_weights(str(path), "float32") == path.stat().st_size


def test_a_damaged_file_is_named(tmp_path):
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    path = tmp_path / "bad.gguf"
    path.write_bytes(np.arange(64, dtype=np.uint8).tobytes())
    with pytest.raises(DamagedFile, match=r"bad\.gguf does not hold a model"):
        load_model(ModelSettings(str(path)))


def test_missing_libraries_are_named(tmp_path, monkeypatch):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(gguf_files, "LIBRARIES", ("no_such_library", "no_such_other"))
    with pytest.raises(MissingLibrary, match=r"no_such_library and no_such_other must be installed: .*knn-seq\[gguf\]"):
        load_model(ModelSettings(str(tmp_path / "model.gguf")))


def test_other_files_are_no_models(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"GGUF")
    with pytest.raises(InvalidSetting, match=r"or a \.gguf file"):
        load_model(ModelSettings(str(tmp_path / "model.bin")))

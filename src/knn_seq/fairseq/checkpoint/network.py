"""From a checkpoint's weights to a network of Transformers."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSeq2SeqLM, FSMTConfig, FSMTForConditionalGeneration, GenerationConfig

from knn_seq.errors import DamagedFile
from knn_seq.fairseq.checkpoint.configuration import FairseqConfig
from knn_seq.fairseq.checkpoint.modeling import FIRST_POSITION, FairseqForTranslation
from knn_seq.fairseq.checkpoint.options import Architecture, architecture_of
from knn_seq.fairseq.checkpoint.reading import Checkpoint
from knn_seq.fairseq.dictionary import BOS, EOS, PAD

MOST_TOKENS = 200  # of an output before its end, fairseq's default
SHARED = "decoder.embed_tokens.weight"
PROJECTION = "decoder.output_projection.weight"
FSMT_PREFIX = "model."  # before the names that are otherwise fairseq's own

FIRST_WITH_FINAL_NORM = {"encoder": 2, "decoder": 3}  # versions of the format

# Not weights: the format's version, and tables that are computed.
_NO_WEIGHTS = re.compile(r"(encoder|decoder)\.(version|embed_positions\.(_float_tensor|weights))")
_OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def register_fairseq() -> None:
    """Let the Auto classes of Transformers load what `save_pretrained` of our own network wrote."""
    AutoConfig.register(FairseqConfig.model_type, FairseqConfig, exist_ok=True)
    AutoModelForSeq2SeqLM.register(FairseqConfig, FairseqForTranslation, exist_ok=True)


def make_network(checkpoint: Checkpoint) -> Any:
    """The network of a checkpoint in float32: an FSMT where that computes the same, else a network of our own."""
    architecture = architecture_of(checkpoint.options, checkpoint.path)
    weights = _current_names(_without_unused_norms(checkpoint.weights), architecture)
    config = _config(checkpoint, architecture, weights)
    with torch.device("meta"):  # so that no weight is drawn at random only to be replaced
        if fits_fsmt(config, architecture):
            network: Any = FSMTForConditionalGeneration(_fsmt_config(config, checkpoint.options))
        else:
            network = FairseqForTranslation(config)
    if isinstance(network, FSMTForConditionalGeneration):
        if not config.share_all_embeddings:  # an FSMT shares all matrices or none
            weights[PROJECTION] = weights[PROJECTION].clone()
        weights = {FSMT_PREFIX + name: tensor for name, tensor in weights.items()} | _position_tables(network)
    _fill(network, weights, checkpoint)
    network.generation_config = generation_config()
    return network.eval()


def fits_fsmt(config: FairseqConfig, architecture: Architecture) -> bool:
    """Whether Transformers' own FSMT computes the same."""
    return (
        not config.encoder_normalize_before
        and not config.decoder_normalize_before
        and not config.encoder_final_norm
        and not config.decoder_final_norm
        and not config.layernorm_embedding
        and config.encoder_positions == config.decoder_positions == "sinusoidal"
        and config.encoder_embed_dim == config.decoder_embed_dim
        and not architecture.multilingual  # FSMT reads one token before the first step, no more
    )


def fairseq_search(positions: int) -> GenerationConfig:
    """The search that fairseq does by default: five beams until there are five outputs, or one has 200 tokens.

    Args:
        positions: Tokens that the decoder can read.
    """
    config = generation_config()
    config.update(
        num_beams=5, early_stopping=True, max_new_tokens=min(MOST_TOKENS + 1, positions), forced_eos_token_id=EOS
    )
    return config


def generation_config() -> GenerationConfig:
    """What fairseq's search does whatever its options: no padding in an output, and no output without a token."""
    return GenerationConfig(
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
        suppress_tokens=[PAD],
        min_new_tokens=1,
    )


def _without_unused_norms(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights without the norms behind the last layers, where the format's version says that they are not used."""
    unused = tuple(
        f"{side}.layer_norm."
        for side, first in FIRST_WITH_FINAL_NORM.items()
        if float(weights.get(f"{side}.version", torch.ones(1)).flatten()[0]) < first
    )
    return {name: tensor for name, tensor in weights.items() if not name.startswith(unused)}


def _current_names(weights: dict[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """The weights as fairseq names them today."""
    renamed = {}
    for name, tensor in weights.items():
        if _NO_WEIGHTS.fullmatch(name):
            continue
        if match := re.fullmatch(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)", name):
            name = f"{match[1]}.{_OLD_NORMS[match[2]][int(match[3])]}.{match[4]}"
        if match := re.fullmatch(r"(.+_attn\.)in_proj_(weight|bias)", name):
            for part, piece in zip("qkv", tensor.chunk(3), strict=True):
                renamed[f"{match[1]}{part}_proj.{match[2]}"] = piece.clone()
        else:
            renamed[PROJECTION if name == "decoder.embed_out" else name] = tensor
    if architecture.share_decoder_embeddings and SHARED in renamed:
        renamed[PROJECTION] = renamed[SHARED]
    if architecture.share_all_embeddings and SHARED in renamed:
        renamed["encoder.embed_tokens.weight"] = renamed[SHARED]
    return renamed


def _config(checkpoint: Checkpoint, architecture: Architecture, weights: dict[str, Tensor]) -> FairseqConfig:
    """The sizes, from the weights themselves."""
    for side in ("encoder", "decoder"):
        for name in (f"{side}.embed_tokens.weight", f"{side}.layers.0.fc1.weight"):
            if weights.get(name, torch.empty(0)).dim() != 2:
                raise _unknown_variant(checkpoint, f"it lacks the matrix '{name}'")
    sizes: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        layers = {int(match[1]) for name in weights if (match := re.match(rf"{side}\.layers\.(\d+)\.", name))}
        heads = architecture.encoder_heads if side == "encoder" else architecture.decoder_heads
        width = weights[f"{side}.embed_tokens.weight"].shape[1]
        if width % heads:
            raise _unknown_variant(checkpoint, f"its {side} is {width} wide with {heads} heads")
        sizes |= {
            f"{side}_embed_dim": width,
            f"{side}_layers": max(layers) + 1,
            f"{side}_ffn_dim": weights[f"{side}.layers.0.fc1.weight"].shape[0],
            f"{side}_attention_heads": heads,
            f"{side}_final_norm": f"{side}.layer_norm.weight" in weights,
        }
    positions = {"max_source_positions": "encoder", "max_target_positions": "decoder"}
    for name, side in positions.items():
        table = weights.get(f"{side}.embed_positions.weight")
        sizes[name] = getattr(architecture, name) if table is None else len(table) - FIRST_POSITION
    return FairseqConfig(
        src_vocab_size=len(weights["encoder.embed_tokens.weight"]),
        tgt_vocab_size=len(weights[SHARED]),
        encoder_normalize_before=architecture.encoder_normalize_before,
        decoder_normalize_before=architecture.decoder_normalize_before,
        encoder_positions=architecture.encoder_positions,
        decoder_positions=architecture.decoder_positions,
        layernorm_embedding="encoder.layernorm_embedding.weight" in weights,
        scale_embedding=architecture.scale_embedding,
        activation_function=architecture.activation,
        share_all_embeddings=architecture.share_all_embeddings,
        share_decoder_embeddings=architecture.share_decoder_embeddings,
        **sizes,
    )


def _fsmt_config(config: FairseqConfig, options: dict[str, Any]) -> FSMTConfig:
    same = (
        "src_vocab_size tgt_vocab_size encoder_layers decoder_layers encoder_attention_heads decoder_attention_heads "
        "encoder_ffn_dim decoder_ffn_dim max_position_embeddings scale_embedding activation_function"
    )
    return FSMTConfig(
        langs=[options.get("source_lang") or "src", options.get("target_lang") or "tgt"],
        d_model=config.decoder_embed_dim,
        tie_word_embeddings=config.share_all_embeddings,
        forced_eos_token_id=None,
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
        **{name: getattr(config, name) for name in same.split()},
    )


def _position_tables(network: Any) -> dict[str, Tensor]:
    """FSMT counts its computed tables among its weights."""
    tables = {}
    for side in ("encoder", "decoder"):
        positions = getattr(network.model, side).embed_positions
        name = f"{FSMT_PREFIX}{side}.embed_positions.weight"
        tables[name] = positions.get_embedding(*positions.weight.shape, positions.padding_idx)
    return tables


def _fill(network: Any, weights: dict[str, Tensor], checkpoint: Checkpoint) -> None:
    expected = network.state_dict()
    for name in sorted(weights.keys() - expected.keys()):
        raise _unknown_variant(checkpoint, f"it has the tensor '{name.removeprefix(FSMT_PREFIX)}'")
    for name, tensor in expected.items():
        shown = name.removeprefix(FSMT_PREFIX)
        if name not in weights:
            raise _unknown_variant(checkpoint, f"it lacks the tensor '{shown}'")
        if weights[name].shape != tensor.shape:
            shapes = f"{tuple(weights[name].shape)}, not {tuple(tensor.shape)}"
            raise _unknown_variant(checkpoint, f"its tensor '{shown}' has the shape {shapes}")
    network.load_state_dict(weights, assign=True)
    network.tie_weights()


def _unknown_variant(checkpoint: Checkpoint, reason: str) -> DamagedFile:
    return DamagedFile(f"{checkpoint.path} is of a variant that is not supported: {reason}.")

"""What a checkpoint's options mean for the computation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knn_seq.errors import InvalidSetting

OPTIONS_NAME = "fairseq.json"  # options beside a checkpoint that count more than those inside it
DEFAULT_POSITIONS = 1024
ACTIVATIONS = ("relu", "gelu")
TASKS = (None, "translation", "translation_multi_simple_epoch")

# Values of named architectures where they are not the usual ones, for old checkpoints that do not store all of them.
_BIG = {"encoder_attention_heads": 16, "decoder_attention_heads": 16}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "transformer_tiny": {"encoder_attention_heads": 2, "decoder_attention_heads": 2},
    "transformer_iwslt_de_en": {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    "transformer_vaswani_wmt_en_de_big": _BIG,
    "transformer_vaswani_wmt_en_fr_big": _BIG,
    "transformer_wmt_en_de_big": _BIG,
    "transformer_wmt_en_de_big_t2t": {**_BIG, "encoder_normalize_before": True, "decoder_normalize_before": True},
}

_OTHER_FAMILIES = (
    "transformer_lm",
    "transformer_pointer_generator",
    "transformer_monotonic",
    "transformer_unidirectional",
    "nonautoregressive",
    "levenshtein",
    "insertion",
    "iterative",
    "cmlm",
    "s2t",
    "convtransformer",
    "linformer",
    "latent",
)

# Each of these, where it is set, changes what the network computes.
_UNSUPPORTED = (
    "adaptive_softmax_cutoff",
    "adaptive_input",
    "tie_adaptive_weights",
    "no_cross_attention",
    "cross_self_attention",
    "layer_wise_attention",
    "char_inputs",
    "base_layers",
    "merge_src_tgt_embed",
    "quant_noise_pq",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
    "scale_attn",
    "scale_heads",
    "scale_fc",
    "scale_resids",
    "lang_tok_replacing_bos_eos",
)


@dataclass(frozen=True)
class Architecture:
    """What the weights alone do not tell."""

    encoder_heads: int
    decoder_heads: int
    encoder_normalize_before: bool
    decoder_normalize_before: bool
    encoder_positions: str  # sinusoidal, learned or none
    decoder_positions: str
    activation: str
    scale_embedding: bool
    share_all_embeddings: bool
    share_decoder_embeddings: bool
    max_source_positions: int
    max_target_positions: int
    multilingual: bool


def architecture_of(options: dict[str, Any], path: Path) -> Architecture:
    """The architecture, or an `InvalidSetting` that names the option which is not supported."""
    name = options.get("arch") or "transformer"
    if "transformer" not in name or name.startswith(_OTHER_FAMILIES):
        raise InvalidSetting(
            f"{path} is a model of the architecture '{name}', which is not supported: "
            "only Transformers with an encoder and a decoder (transformer, transformer_wmt_en_de_big ...) are."
        )
    if options.get("task") not in TASKS and "translation_knn" not in str(options.get("task")):
        raise InvalidSetting(
            f"{path} was trained for the task '{options['task']}', which is not supported: "
            f"only {' and '.join(filter(None, TASKS))} are."
        )
    values = _DEFAULTS.get(name, {}) | {key: value for key, value in options.items() if value is not None}
    for option in _UNSUPPORTED:
        if values.get(option):
            raise _unsupported(path, option, values[option])
    activation = values.get("activation_fn", "relu")
    if activation not in ACTIVATIONS:
        raise _unsupported(path, "activation_fn", activation)
    share_all = bool(values.get("share_all_embeddings"))
    return Architecture(
        encoder_heads=_number(values, "encoder_attention_heads", 8, path),
        decoder_heads=_number(values, "decoder_attention_heads", 8, path),
        encoder_normalize_before=bool(values.get("encoder_normalize_before")),
        decoder_normalize_before=bool(values.get("decoder_normalize_before")),
        encoder_positions=_positions(values, "encoder"),
        decoder_positions=_positions(values, "decoder"),
        activation=activation,
        scale_embedding=not values.get("no_scale_embedding"),
        share_all_embeddings=share_all,
        share_decoder_embeddings=share_all or bool(values.get("share_decoder_input_output_embed")),
        max_source_positions=_number(values, "max_source_positions", DEFAULT_POSITIONS, path),
        max_target_positions=_number(values, "max_target_positions", DEFAULT_POSITIONS, path),
        multilingual=is_multilingual(options),
    )


def is_multilingual(options: dict[str, Any]) -> bool:
    """Whether language tokens tell the model what to translate from and to."""
    return "multi_simple_epoch" in str(options.get("task")) and bool(
        options.get("encoder_langtok") or options.get("decoder_langtok")
    )


def _positions(values: dict[str, Any], side: str) -> str:
    if values.get("no_token_positional_embeddings"):
        return "none"
    return "learned" if values.get(f"{side}_learned_pos") else "sinusoidal"


def _number(values: dict[str, Any], option: str, default: int, path: Path) -> int:
    value = values.get(option, default)
    if not isinstance(value, int) or value < 1:
        raise _unsupported(path, option, value)
    return value


def _unsupported(path: Path, option: str, value: object) -> InvalidSetting:
    return InvalidSetting(f"{path} was trained with the option '{option}' ({value}), which is not supported.")

"""From the tensors of a Marian file to our model's sizes and weights."""

from __future__ import annotations

import re

import numpy as np
import torch
from torch import Tensor

from knn_seq.errors import DamagedFile
from knn_seq.models.firefox_network.marian_file import MarianFile
from knn_seq.models.firefox_network.sizes import FirefoxSizes

_DEFAULT_HEADS = "8"

# What the training configuration must say, where it says anything: each value but these changes the computation.
_OPTIONS = {
    "type": ("transformer",),
    "dec-cell": ("ssru",),
    "dec-cell-base-depth": ("2",),
    "dec-cell-high-depth": ("1",),
    "transformer-decoder-autoreg": ("rnn",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan", "an"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-ffn-activation": ("relu",),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("2", "0"),
    "transformer-depth-scaling": ("false",),
    "transformer-no-projection": ("false",),
    "transformer-rnn-projection": ("false",),
    "transformer-pool": ("false",),
    "transformer-tied-layers": ("[]", ""),
    "transformer-train-position-embeddings": ("false",),
    "tied-embeddings-all": ("true",),
    "output-omit-bias": ("false",),
    "input-types": ("[]", ""),
    "lemma-dim-emb": ("0",),
    "right-left": ("false",),
    "ulr": ("false",),
}

# The tensors of a part, in Marian's words: each of ours is one or several of theirs, one below the other.
_ATTENTION_OUT = {"out.weight": ["Wo"], "out.bias": ["bo"]}
_SELF_ATTENTION = {"qkv.weight": ["Wq", "Wk", "Wv"], "qkv.bias": ["bq", "bk", "bv"], **_ATTENTION_OUT}
_CROSS_ATTENTION = {
    "q.weight": ["Wq"],
    "q.bias": ["bq"],
    "kv.weight": ["Wk", "Wv"],
    "kv.bias": ["bk", "bv"],
    **_ATTENTION_OUT,
}
_SSRU = {"zf.weight": ["W", "Wf"], "zf.bias": ["", "bf"]}  # z has no bias
_FEED_FORWARD = {"fc1.weight": ["W1"], "fc1.bias": ["b1"], "fc2.weight": ["W2"], "fc2.bias": ["b2"]}
_NORM = {"weight": ["scale"], "bias": ["bias"]}

# The parts of a layer: our name, their name, tensors.
_Part = tuple[str, str, dict[str, list[str]]]
_FEED_FORWARD_PARTS: list[_Part] = [("", "ffn_", _FEED_FORWARD), ("ffn_norm.", "ffn_ffn_ln_", _NORM)]
_ENCODER_PARTS: list[_Part] = [
    ("self_attention.", "self_", _SELF_ATTENTION),
    ("self_attention_norm.", "self_Wo_ln_", _NORM),
    *_FEED_FORWARD_PARTS,
]
_DECODER_PARTS: list[_Part] = [
    ("ssru.", "rnn_", _SSRU),
    ("ssru_norm.", "rnn_ffn_ln_", _NORM),
    ("cross_attention.", "context_", _CROSS_ATTENTION),
    ("cross_attention_norm.", "context_Wo_ln_", _NORM),
    *_FEED_FORWARD_PARTS,
]


def convert(file: MarianFile) -> tuple[FirefoxSizes, dict[str, Tensor]]:
    """The sizes and the weights by our model's names, or a `DamagedFile` that names what does not fit."""
    for option, allowed in _OPTIONS.items():
        value = file.options.get(option, allowed[0])
        if value not in allowed:
            raise _unknown_variant(file, f"its option '{option}' is '{value}', not '{allowed[0]}'")
    layers = {side: _count_layers(file, side) for side in ("encoder", "decoder")}
    sources = _sources(layers)
    expected = {name for parts in sources.values() for name in parts if name}
    for name in sorted(set(file.tensors) - expected):
        raise _unknown_variant(file, f"it has the tensor '{name}'")
    for name in sorted(expected - set(file.tensors)):
        raise _unknown_variant(file, f"it lacks the tensor '{name}'")

    embedding = file.tensors["Wemb"].shape
    if len(embedding) != 2:
        raise _unknown_variant(file, f"its tensor 'Wemb' has the shape {embedding}")
    vocab_size, d_model = embedding
    heads = file.options.get("transformer-heads", _DEFAULT_HEADS)
    if not heads.isdecimal() or int(heads) < 1 or d_model % int(heads):
        raise _unknown_variant(file, f"its option 'transformer-heads' is '{heads}' with a width of {d_model}")
    config = FirefoxSizes(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder_layers=layers["encoder"],
        decoder_layers=layers["decoder"],
        attention_heads=int(heads),
        encoder_ffn_dim=file.tensors["encoder_l1_ffn_b1"].size,
        decoder_ffn_dim=file.tensors["decoder_l1_ffn_b1"].size,
    )
    return config, {ours: _weight(file, config, ours, theirs) for ours, theirs in sources.items()}


def stored_scales(file: MarianFile, config: FirefoxSizes) -> dict[str, Tensor]:
    """What a 1 stands for in each output of the layers that have 8 bits in the file, (outputs,), by their paths."""
    matrices = {"lm_head": ["Wemb"]} | {
        ours.removesuffix(".weight"): theirs
        for ours, theirs in _sources({"encoder": config.encoder_layers, "decoder": config.decoder_layers}).items()
        if ours.endswith(".weight") and "norm" not in ours and ours != "shared.weight"
    }
    return {
        path: torch.cat([torch.full((_outputs(file, name),), file.scales[name]) for name in names])
        for path, names in matrices.items()
        if all(name in file.scales for name in names)
    }


def _outputs(file: MarianFile, name: str) -> int:
    return int(file.tensors[name].shape[0 if name == "Wemb" else 1])


def _unknown_variant(file: MarianFile, reason: str) -> DamagedFile:
    return DamagedFile(
        f"{file.path} is of a variant that is not supported ({reason}): "
        "use a Firefox model with a Transformer encoder, an SSRU decoder and one embedding matrix."
    )


def _count_layers(file: MarianFile, side: str) -> int:
    numbers = [int(match[1]) for name in file.tensors if (match := re.match(rf"{side}_l(\d+)_", name))]
    if not numbers:
        raise _unknown_variant(file, f"it lacks the tensors of {side} layers")
    return max(numbers)


def _sources(layers: dict[str, int]) -> dict[str, list[str]]:
    """Marian's tensors that make up each of our weights; an empty name stands for zeros."""
    sources = {"shared.weight": ["Wemb"], "lm_head.bias": ["decoder_ff_logit_out_b"]}
    for side, parts in (("encoder", _ENCODER_PARTS), ("decoder", _DECODER_PARTS)):
        for layer in range(layers[side]):
            for ours, theirs, tensors in parts:
                for weight, names in tensors.items():
                    marian_names = [name and f"{side}_l{layer + 1}_{theirs}{name}" for name in names]
                    sources[f"{side}.layers.{layer}.{ours}{weight}"] = marian_names
    return sources


def _weight(file: MarianFile, config: FirefoxSizes, ours: str, theirs: list[str]) -> Tensor:
    """One of our weights: (outputs, inputs) for a matrix, (outputs,) for a vector."""
    d = config.d_model
    inner = config.decoder_ffn_dim if ours.startswith("decoder") else config.encoder_ffn_dim
    vector = not ours.endswith("weight") or "norm" in ours
    inputs = inner if "fc2" in ours else d
    outputs = inner if "fc1" in ours else config.vocab_size if ours in ("shared.weight", "lm_head.bias") else d
    shape = (1, outputs) if vector else (outputs, inputs) if ours == "shared.weight" else (inputs, outputs)
    parts = []
    for name in theirs:
        tensor = file.tensors[name] if name else np.zeros(shape, dtype=np.float32)
        if tensor.shape != shape:
            raise _unknown_variant(file, f"its tensor '{name}' has the shape {tensor.shape}, not {shape}")
        parts.append(torch.from_numpy(tensor if ours == "shared.weight" else tensor.reshape(shape).T))
    joined = torch.cat(parts)
    return joined.flatten() if vector else joined.contiguous()

"""The weights of a decoder of Transformers, in the order in which a step needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knn_seq.models.int8 import Int8Linear, Int8Weight
from knn_seq.models.linear import Linear, linear_for, outputs_of

# The classes whose decoders are alike, and whether a block's norm comes before it.
PRE_NORM = {
    "MarianMTModel": False,
    "BartForConditionalGeneration": False,
    "MBartForConditionalGeneration": True,
    "M2M100ForConditionalGeneration": True,
    "PegasusForConditionalGeneration": True,
}
KEYS = ("ffn_in", "ffn_out")

Norm = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FusedLayer:
    """A decoder layer."""

    qkv: Linear  # of self-attention
    out: Linear
    query: Linear  # of cross-attention
    memory: Linear  # its keys and values, from the encoder's states
    cross_out: Linear
    first: Linear  # of the feed-forward block
    last: Linear
    activation: Callable[[Tensor], Tensor]
    attention_norm: Norm
    cross_norm: Norm
    ffn_norm: Norm


@dataclass(frozen=True)
class FusedNetwork:
    """A decoder with its embeddings and its output projection."""

    layers: list[FusedLayer]
    heads: int
    width: int
    pre_norm: bool
    embed: Callable[[Tensor, Tensor], Tensor]  # tokens and their positions, (rows,) each, to (rows, width)
    project: OutputProjection
    final_norm: Norm | None


class OutputProjection:
    """States to logits.

    Args:
        module: The network's own.
        bias: In the place of its own, (vocabulary,) or None.
        dtype: The precision of the product.
    """

    def __init__(self, module: nn.Linear | Int8Linear, bias: Tensor | None, dtype: str) -> None:
        if isinstance(module, Int8Linear):
            self._module: nn.Linear | Int8Linear = Int8Linear(Int8Weight(module.weight, module.scales), bias)
        else:
            self._module = _linear(module.weight, bias)
        self._dtype, self._linear = dtype, linear_for(self._module, dtype)

    def __call__(self, states: Tensor) -> Tensor:
        """Logits, (rows, vocabulary), of states, (rows, width)."""
        return self._linear(states)

    def limited(self, vocabulary: Tensor) -> Linear:
        """What gives the logits of some tokens only, ascending, (n,)."""
        return linear_for(self._module, self._dtype, vocabulary)

    def some(self, states: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        """Of the states in rows[i] the logit of tokens[i], (n,)."""
        return outputs_of(self._module, states, rows, tokens)


def fused_network(network: Any, key: str, dtype: str) -> FusedNetwork | None:
    """The decoder of a network; None: it is not one of those that are alike.

    The weights of fused products are one tensor, and the network's own become parts of it: none is there twice, and
    who changes the network's changes these.

    Args:
        network: Of Transformers.
        key: Where the query is taken, as `ModelSettings.key` has it.
        dtype: The precision that products are computed in.
    """
    name = type(network).__name__
    if name not in PRE_NORM or key not in KEYS:
        return None
    decoder = network.get_decoder()
    bias = getattr(network, "final_logits_bias", None)
    own = network.lm_head.bias
    if bias is not None:
        bias = bias[0] if own is None else bias[0] + own
    return FusedNetwork(
        [_layer(layer, dtype) for layer in decoder.layers],
        decoder.layers[0].self_attn.num_heads,
        network.config.d_model,
        PRE_NORM[name],
        embedding_of(decoder),
        OutputProjection(network.lm_head, own if bias is None else bias, dtype),
        norm_of(decoder.layer_norm) if hasattr(decoder, "layer_norm") else None,
    )


def _layer(layer: Any, dtype: str) -> FusedLayer:
    own, cross = layer.self_attn, layer.encoder_attn
    return FusedLayer(
        qkv=linear_for(joined([own.q_proj, own.k_proj, own.v_proj]), dtype),
        out=linear_for(own.out_proj, dtype),
        query=linear_for(cross.q_proj, dtype),
        memory=linear_for(joined([cross.k_proj, cross.v_proj]), dtype),
        cross_out=linear_for(cross.out_proj, dtype),
        first=linear_for(layer.fc1, dtype),
        last=linear_for(layer.fc2, dtype),
        activation=layer.activation_fn,
        attention_norm=norm_of(layer.self_attn_layer_norm),
        cross_norm=norm_of(layer.encoder_attn_layer_norm),
        ffn_norm=norm_of(layer.final_layer_norm),
    )


@torch.no_grad()
def joined(modules: list[Any]) -> nn.Linear | Int8Linear:
    """One layer that computes what these do, side by side; they become views of its weights if these are floats."""
    weight = torch.cat([module.weight for module in modules])
    bias = None if modules[0].bias is None else torch.cat([module.bias for module in modules])
    if isinstance(modules[0], Int8Linear):
        return Int8Linear(Int8Weight(weight, torch.cat([module.scales for module in modules])), bias)
    first = 0
    for module in modules:
        rows = slice(first, first + len(module.weight))
        module.weight.data = weight[rows]
        if bias is not None:
            module.bias.data = bias[rows]
        first = rows.stop
    return _linear(weight, bias)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    module = nn.Linear(1, 1, bias=bias is not None, device="meta")
    module.in_features, module.out_features = weight.shape[1], weight.shape[0]
    module.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        module.bias = nn.Parameter(bias, requires_grad=False)
    return module


def norm_of(module: Any) -> Norm:
    """What a layer norm computes."""
    shape, weight, bias, eps = module.normalized_shape, module.weight, module.bias, module.eps
    return lambda x: F.layer_norm(x, shape, weight, bias, eps)


def embedding_of(side: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """What an encoder or a decoder makes of tokens and their positions, (rows,) each: (rows, width)."""
    words, positions = side.embed_tokens, side.embed_positions
    scale = float(getattr(side, "embed_scale", getattr(words, "embed_scale", 1.0)))
    table = positions.weights if hasattr(positions, "weights") else positions.weight
    padding = positions.padding_idx if hasattr(positions, "weights") else None  # it has no position in an M2M100
    offset = getattr(positions, "offset", 0) if padding is None else padding + 1
    norm = norm_of(side.layernorm_embedding) if hasattr(side, "layernorm_embedding") else None

    def embed(tokens: Tensor, at: Tensor) -> Tensor:
        at = at + offset
        if padding is not None:
            at = at.masked_fill(tokens == padding, padding)
        x = torch.add(F.embedding(at, table), F.embedding(tokens, words.weight), alpha=scale)
        return x if norm is None else norm(x)

    return embed

"""An encoder of Transformers, without padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from knn_seq.models.fused.network import PRE_NORM, Norm, embedding_of, joined, norm_of
from knn_seq.models.linear import Linear, linear_for


@dataclass(frozen=True)
class EncoderLayer:
    """A layer of it."""

    qkv: Linear
    out: Linear
    first: Linear  # of the feed-forward block
    last: Linear
    activation: Callable[[Tensor], Tensor]
    attention_norm: Norm
    ffn_norm: Norm


@dataclass(frozen=True)
class FusedEncoder:
    """The encoder of Marian, BART, mBART, M2M100 and Pegasus, for a CPU: nothing is computed for padding.

    The tokens of all sentences are rows of the same products; those of equal length attend together.
    """

    layers: list[EncoderLayer]
    heads: int
    width: int
    pre_norm: bool
    longest: int  # tokens that a source may have
    embed: Callable[[Tensor, Tensor], Tensor]  # tokens and their positions, (rows,) each, to (rows, width)
    final_norm: Norm | None

    def reads(self, sources: Sequence[Sequence[int]]) -> bool:
        """Whether all of them have a length that it can read."""
        return all(0 < len(source) <= self.longest for source in sources)

    @torch.no_grad()
    def __call__(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """The states of sources, (sentences, longest, width), zeros behind the end of each."""
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        lengths = [len(sources[number]) for number in order]
        tokens = torch.tensor([token for number in order for token in sources[number]], dtype=torch.int64)
        at = torch.cat([torch.arange(length) for length in lengths])
        groups = [(length, len(list(group))) for length, group in groupby(lengths)]
        x = self.embed(tokens, at)
        for layer in self.layers:
            x = self._layer(layer, x, groups)
        if self.final_norm is not None:
            x = self.final_norm(x)
        states = x.new_zeros(len(sources), lengths[-1], self.width)
        states[torch.tensor(order).repeat_interleave(torch.tensor(lengths)), at] = x
        return states

    def _layer(self, layer: EncoderLayer, x: Tensor, groups: list[tuple[int, int]]) -> Tensor:
        """(rows, width) to the same."""
        block = layer.attention_norm(x) if self.pre_norm else x
        x = x + layer.out(self._attend(layer.qkv(block), groups))
        if not self.pre_norm:
            x = layer.attention_norm(x)
        block = layer.ffn_norm(x) if self.pre_norm else x
        x = x + layer.last(layer.activation(layer.first(block)))
        return x if self.pre_norm else layer.ffn_norm(x)

    def _attend(self, qkv: Tensor, groups: list[tuple[int, int]]) -> Tensor:
        """(rows, 3 × width) to (rows, width), for groups of so many tokens and so many sentences."""
        found = qkv.new_empty(len(qkv), self.width)
        ends = accumulate(length * sentences for length, sentences in groups)
        for end, (length, sentences) in zip(ends, groups, strict=True):
            rows = slice(end - length * sentences, end)
            q, k, v = qkv[rows].view(sentences, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v)
            found[rows].view(sentences, length, self.heads, -1).copy_(attended.transpose(1, 2))
        return found


def fused_encoder(network: Any, dtype: str) -> FusedEncoder | None:
    """The encoder of a network; None: it is not one of those that are alike, or not on a CPU.

    As for `fused_network`, the network's own weights become parts of fused ones.

    Args:
        network: Of Transformers.
        dtype: The precision that products are computed in; in float16 the networks clamp what overflows.
    """
    name = type(network).__name__
    if name not in PRE_NORM or dtype == "float16" or network.device.type != "cpu":
        return None
    encoder = network.get_encoder()
    return FusedEncoder(
        [_layer(layer, dtype) for layer in encoder.layers],
        encoder.layers[0].self_attn.num_heads,
        network.config.d_model,
        PRE_NORM[name],
        network.config.max_position_embeddings,
        embedding_of(encoder),
        norm_of(encoder.layer_norm) if hasattr(encoder, "layer_norm") else None,
    )


def _layer(layer: Any, dtype: str) -> EncoderLayer:
    own = layer.self_attn
    return EncoderLayer(
        qkv=linear_for(joined([own.q_proj, own.k_proj, own.v_proj]), dtype),
        out=linear_for(own.out_proj, dtype),
        first=linear_for(layer.fc1, dtype),
        last=linear_for(layer.fc2, dtype),
        activation=layer.activation_fn,
        attention_norm=norm_of(layer.self_attn_layer_norm),
        ffn_norm=norm_of(layer.final_layer_norm),
    )

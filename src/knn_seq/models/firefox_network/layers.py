"""The layers of a Firefox translation model: a Transformer encoder and a recurrent (SSRU) decoder, both post-norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knn_seq.models.firefox_network.sizes import FirefoxSizes

_NORM_EPS = 1e-6
_FEW_ROWS = 16
_LANES = 16  # floats that a CPU adds at a time


class FirefoxCache:
    """What the decoder remembers between two steps.

    Attributes:
        states: The SSRU state of each layer, (rows, d).
        memory: Keys and values of each layer's cross-attention, see `CrossAttention.memory`.
        mask: What cross-attention adds to its scores, (rows, 1, 1, source length), or None.
        length: Number of target tokens seen.
    """

    is_compileable = False
    is_croppable = False

    def __init__(self) -> None:
        self.states: list[Tensor] = []
        self.memory: list[tuple[Tensor, Tensor]] = []
        self.mask: Tensor | None = None
        self.length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of target tokens seen."""
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i continue what was row beam_idx[i].

        Beams only move within their sentence, so its memory stays where it is, unless the number of rows changes.
        """
        if len(beam_idx) != len(self.states[0]):
            self.memory = [(k.index_select(0, beam_idx), v.index_select(0, beam_idx)) for k, v in self.memory]
            self.mask = None if self.mask is None else self.mask.index_select(0, beam_idx)
        self.states = [state.index_select(0, beam_idx) for state in self.states]


class EncoderOutput(NamedTuple):
    """What the encoder made of a batch."""

    last_hidden_state: Tensor  # (rows, length, d)


class SinusoidalPositions(nn.Module):
    """Position vectors: sines in the first half, cosines in the second; the table grows with the longest input."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self._table: Tensor | None = None

    def forward(self, start: int, length: int, like: Tensor) -> Tensor:
        """Vectors of the positions from `start` on, (length, d), with the device and type of `like`."""
        table = self._table
        if table is None or len(table) < start + length or table.device != like.device or table.dtype != like.dtype:
            size = max(512, 2 * (start + length))
            half = self.d_model // 2
            frequencies = torch.exp(torch.arange(half) * (-math.log(10000.0) / max(half - 1, 1)))
            angles = torch.arange(size)[:, None] * frequencies
            table = self._table = torch.cat([angles.sin(), angles.cos()], dim=1).to(like)
        return table[start : start + length]


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself."""

    def __init__(self, config: FirefoxSizes) -> None:
        super().__init__()
        self.heads = config.attention_heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.out = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(rows, length, d) to the same, with a mask of (rows, 1, 1, length)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def packed(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """(tokens, d) to the same, for sequences of these lengths one behind the other."""
        heads = self.qkv(x).unflatten(-1, (3, self.heads, -1)).split(lengths)
        attended = [
            F.scaled_dot_product_attention(*sequence.permute(1, 2, 0, 3).unsqueeze(1)).squeeze(0).transpose(0, 1)
            for sequence in heads
        ]
        return self.out(torch.cat(attended).flatten(1))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder to the encoder's states."""

    def __init__(self, config: FirefoxSizes) -> None:
        super().__init__()
        self.heads = config.attention_heads
        self.q = nn.Linear(config.d_model, config.d_model)
        self.kv = nn.Linear(config.d_model, 2 * config.d_model)
        self.out = nn.Linear(config.d_model, config.d_model)

    def memory(self, encoder_states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, (rows, heads, d / heads, source length), scaled, and the other way round."""
        k, v = self.kv(encoder_states).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return (k.transpose(2, 3) * k.shape[3] ** -0.5).contiguous(), v.contiguous()

    def forward(self, x: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """(rows, length, d) to the same, with a mask of (rows, 1, 1, source length)."""
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = memory
        attended = F.scaled_dot_product_attention(q, k.transpose(2, 3), v, attn_mask=mask, scale=1.0)
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class SSRU(nn.Module):
    """Simpler simple recurrent unit: c_t = f_t ∘ c_{t-1} + (1 − f_t) ∘ z_t, with ReLU(c_t) as the output."""

    def __init__(self, config: FirefoxSizes) -> None:
        super().__init__()
        self.zf = nn.Linear(config.d_model, 2 * config.d_model)

    def forward(self, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, length, d) and the state before it, (rows, d), to outputs and the state after it."""
        z, f = self.zf(x).chunk(2, dim=-1)
        f = torch.sigmoid(f)
        states = []
        for z_t, f_t in zip(z.unbind(1), f.unbind(1), strict=True):
            c = torch.lerp(z_t, c, f_t)
            states.append(c)
        return torch.relu(torch.stack(states, dim=1)), c


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward block, each with residual and norm."""

    def __init__(self, config: FirefoxSizes) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.self_attention_norm = nn.LayerNorm(config.d_model, _NORM_EPS)
        self.fc1 = nn.Linear(config.d_model, config.encoder_ffn_dim)
        self.fc2 = nn.Linear(config.encoder_ffn_dim, config.d_model)
        self.ffn_norm = nn.LayerNorm(config.d_model, _NORM_EPS)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(rows, length, d) to the same."""
        return self._feed_forward(self.self_attention_norm(x + self.self_attention(x, mask)))

    def packed(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """(tokens, d) to the same, for sequences of these lengths one behind the other."""
        return self._feed_forward(self.self_attention_norm(x + self.self_attention.packed(x, lengths)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.ffn_norm(x + self.fc2(torch.relu(self.fc1(x))))  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """SSRU, cross-attention and feed-forward block, each with residual and norm."""

    def __init__(self, config: FirefoxSizes) -> None:
        super().__init__()
        self.ssru = SSRU(config)
        self.ssru_norm = nn.LayerNorm(config.d_model, _NORM_EPS)
        self.cross_attention = CrossAttention(config)
        self.cross_attention_norm = nn.LayerNorm(config.d_model, _NORM_EPS)
        self.fc1 = nn.Linear(config.d_model, config.decoder_ffn_dim)
        self.fc2 = nn.Linear(config.decoder_ffn_dim, config.d_model)
        self.ffn_norm = nn.LayerNorm(config.d_model, _NORM_EPS)

    def forward(
        self, x: Tensor, state: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(rows, length, d) and the SSRU's state to outputs and the state after them."""
        recurrent, state = self.ssru(x, state)
        x = self.ssru_norm(x + recurrent)
        x = self.cross_attention_norm(x + self.cross_attention(x, memory, mask))
        return self.ffn_norm(x + self.fc2(torch.relu(self.fc1(x)))), state


class Encoder(nn.Module):
    """Source ids to hidden states."""

    def __init__(self, config: FirefoxSizes, embed_tokens: nn.Embedding) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.embed_positions = SinusoidalPositions(config.d_model)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> EncoderOutput:
        """Ids and mask (1: token, 0: padding), (rows, length) each, to states (rows, length, d)."""
        x = self.embed_tokens(input_ids)
        x = torch.add(self.embed_positions(0, x.shape[1], x), x, alpha=math.sqrt(x.shape[-1]))
        if attention_mask is not None and x.device.type == "cpu":
            return EncoderOutput(self._packed(x, attention_mask != 0))
        mask = None if attention_mask is None else _additive(attention_mask, x)
        for layer in self.layers:
            x = layer(x, mask)
        return EncoderOutput(x)

    def _packed(self, x: Tensor, real: Tensor) -> Tensor:
        """Without the padding, which costs, and which lets a CPU add in another order than without it."""
        lengths = real.sum(dim=1).tolist()
        tokens = x[real]
        for layer in cast("list[EncoderLayer]", list(self.layers)):
            tokens = layer.packed(tokens, lengths)
        return torch.zeros_like(x).masked_scatter(real.unsqueeze(2), tokens)


class Decoder(nn.Module):
    """Target ids and the encoder's states to hidden states."""

    def __init__(self, config: FirefoxSizes, embed_tokens: nn.Embedding) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.embed_positions = SinusoidalPositions(config.d_model)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

    def forward(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: FirefoxCache | None = None,
        use_cache: bool | None = None,
    ) -> tuple[Tensor, FirefoxCache | None]:
        """One pass over the ids, complete sentences or the next tokens of those in the cache.

        Args:
            input_ids: (rows, length).  The id at position 0 is not looked at: the model starts from a zero vector.
            encoder_hidden_states: (rows, source length, d); not needed once there is a cache.
            encoder_attention_mask: 1 for a source token, 0 for padding, (rows, source length).
            past_key_values: The cache, changed in place.
            use_cache: Whether to make a cache if there is none.

        Returns:
            The states, (rows, length, d), and the cache.
        """
        layers = cast("list[DecoderLayer]", list(self.layers))
        cache = past_key_values if past_key_values is not None else FirefoxCache()
        if not cache.memory:
            assert encoder_hidden_states is not None
            encoded, cache.mask = in_lanes(encoder_hidden_states, encoder_attention_mask)
            cache.memory = [layer.cross_attention.memory(encoded) for layer in layers]
        x = self._embed(input_ids, cache.length)
        states = cache.states or [x.new_zeros(len(x), x.shape[-1])] * len(layers)
        cache.states = []
        for layer, state, memory in zip(layers, states, cache.memory, strict=True):
            x, state = layer(x, state, memory, cache.mask)
            cache.states.append(state)
        cache.length += input_ids.shape[1]
        return x, cache if use_cache or past_key_values is not None else None

    def _embed(self, ids: Tensor, start: int) -> Tensor:
        x = self.embed_tokens(ids) if start else F.pad(self.embed_tokens(ids[:, 1:]), (0, 0, 1, 0))
        return torch.add(self.embed_positions(start, x.shape[1], x), x, alpha=math.sqrt(x.shape[-1]))


class OutputProjection(nn.Linear):
    """Hidden states to logits.

    The product is two-dimensional, because torch may turn a three-dimensional one with a frozen matrix into a slow
    batched product; and for few rows it is computed transposed, which on a CPU is up to twice as fast.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(rows, length, d) to (rows, length, vocabulary)."""
        rows = x.flatten(0, -2)
        if 1 < len(rows) < _FEW_ROWS and x.device.type == "cpu":
            logits = torch.addmm(self.bias[:, None], self.weight, rows.t()).t().contiguous()
        else:
            logits = super().forward(rows)
        return logits.view(*x.shape[:-1], -1)


def in_lanes(states: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """What cross-attention reads: states, (rows, length, d), and what it adds to its scores, (rows, 1, 1, length).

    The source is padded to full lanes: however much more padding a batch has, the same floats are then added first.  A
    difference in the last bit would be enough for an integer to be rounded the other way.
    """
    if mask is None:
        mask = torch.ones(states.shape[:2], dtype=torch.int64, device=states.device)
    missing = -states.shape[1] % _LANES
    if states.device.type == "cpu" and missing:
        states, mask = F.pad(states, (0, 0, 0, missing)), F.pad(mask, (0, missing))
    return states, _additive(mask, states)


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A 0/1 mask (rows, length) as something to add to attention scores, (rows, 1, 1, length)."""
    lowest = torch.finfo(like.dtype).min
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask == 0, lowest)[:, None, None]

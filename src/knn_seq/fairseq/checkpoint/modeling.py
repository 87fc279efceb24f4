"""fairseq's Transformer in all the variants that Transformers' FSMT does not have, with fairseq's names of weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions, Seq2SeqLMOutput

from knn_seq.fairseq.checkpoint.configuration import FairseqConfig
from knn_seq.fairseq.dictionary import PAD
from knn_seq.models.firefox_network.layers import SinusoidalPositions

FIRST_POSITION = PAD + 1  # fairseq counts positions from here
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class LearnedPositions(nn.Embedding):
    """A trained vector for each position."""

    def __init__(self, positions: int, width: int) -> None:
        super().__init__(FIRST_POSITION + positions, width)

    def forward(self, start: int, length: int, like: Tensor) -> Tensor:  # type: ignore[override]
        """Vectors of the positions from `start` on, (length, width)."""
        return self.weight[start : start + length]


class Embedding(nn.Module):
    """What both stacks begin with: tokens and positions to vectors.

    Args:
        config: The sizes.
        side: encoder or decoder.
    """

    def __init__(self, config: FairseqConfig, side: str) -> None:
        super().__init__()
        encoder = side == "encoder"
        width = config.encoder_embed_dim if encoder else config.decoder_embed_dim
        kind = config.encoder_positions if encoder else config.decoder_positions
        positions = config.max_source_positions if encoder else config.max_target_positions
        self.embed_tokens = nn.Embedding(config.src_vocab_size if encoder else config.tgt_vocab_size, width)
        self.embed_scale = math.sqrt(width) if config.scale_embedding else 1.0
        self.embed_positions: nn.Module | None = None
        if kind == "learned":
            self.embed_positions = LearnedPositions(positions, width)
        elif kind == "sinusoidal":
            self.embed_positions = SinusoidalPositions(width)
        self.layernorm_embedding = nn.LayerNorm(width) if config.layernorm_embedding else None

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Tokens, (rows, length), from position `start` on, to vectors, (rows, length, width)."""
        x: Tensor = self.embed_tokens(tokens) * self.embed_scale
        if self.embed_positions is not None:
            x = x + self.embed_positions(FIRST_POSITION + start, tokens.shape[1], x)
        return x if self.layernorm_embedding is None else self.layernorm_embedding(x)


class Attention(nn.Module):
    """Multi-head attention.

    Args:
        width: Of what asks.
        heads: How many.
        attended_width: Of what is attended to.
    """

    def __init__(self, width: int, heads: int, attended_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(attended_width, width)
        self.v_proj = nn.Linear(attended_width, width)
        self.out_proj = nn.Linear(width, width)

    def memory(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, (rows, heads, length, width / heads) each, of states, (rows, length, attended width)."""
        return self._split(self.k_proj(states)), self._split(self.v_proj(states))

    def forward(self, x: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """(rows, length, width) to the same; the mask is true where a place may be looked at."""
        attended = F.scaled_dot_product_attention(self._split(self.q_proj(x)), *memory, attn_mask=mask)
        return self.out_proj(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class Layer(nn.Module):
    """What encoder and decoder layers have in common: self-attention and a feed-forward block, with their norms."""

    def __init__(self, width: int, heads: int, ffn_dim: int, normalize_before: bool, activation: str) -> None:
        super().__init__()
        self.normalize_before = normalize_before
        self.activation = ACTIVATIONS[activation]
        self.self_attn = Attention(width, heads, width)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, width)
        self.final_layer_norm = nn.LayerNorm(width)

    def feed_forward(self, x: Tensor) -> Tensor:
        """(rows, length, width) to the same."""
        block = self.before(x, self.final_layer_norm)
        return self.behind(x + self.fc2(self.activation(self.fc1(block))), self.final_layer_norm)

    def before(self, x: Tensor, norm: nn.Module) -> Tensor:
        """What a block reads."""
        return norm(x) if self.normalize_before else x

    def behind(self, x: Tensor, norm: nn.Module) -> Tensor:
        """What comes out of a block and its residual connection."""
        return x if self.normalize_before else norm(x)


class EncoderLayer(Layer):
    """Self-attention and feed-forward block."""

    def __init__(self, config: FairseqConfig) -> None:
        super().__init__(
            config.encoder_embed_dim,
            config.encoder_attention_heads,
            config.encoder_ffn_dim,
            config.encoder_normalize_before,
            config.activation_function,
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(rows, length, width) to the same."""
        block = self.before(x, self.self_attn_layer_norm)
        x = self.behind(x + self.self_attn(block, self.self_attn.memory(block), mask), self.self_attn_layer_norm)
        return self.feed_forward(x)


class DecoderLayer(Layer):
    """Self-attention, attention to the source, and feed-forward block.

    Args:
        config: The sizes.
        number: Of the layer, from 0.
    """

    def __init__(self, config: FairseqConfig, number: int) -> None:
        super().__init__(
            config.decoder_embed_dim,
            config.decoder_attention_heads,
            config.decoder_ffn_dim,
            config.decoder_normalize_before,
            config.activation_function,
        )
        self.number = number
        width = config.decoder_embed_dim
        self.encoder_attn = Attention(width, config.decoder_attention_heads, config.encoder_embed_dim)
        self.encoder_attn_layer_norm = nn.LayerNorm(width)

    def forward(
        self,
        x: Tensor,
        encoder_states: Tensor | None,
        self_mask: Tensor | None,
        source_mask: Tensor | None,
        cache: EncoderDecoderCache | None,
    ) -> Tensor:
        """(rows, length, width) to the same."""
        block = self.before(x, self.self_attn_layer_norm)
        memory = self.self_attn.memory(block)
        if cache is not None:
            memory = cache.self_attention_cache.update(*memory, self.number)
        x = self.behind(x + self.self_attn(block, memory, self_mask), self.self_attn_layer_norm)
        block = self.before(x, self.encoder_attn_layer_norm)
        memory = self._source_memory(encoder_states, cache)
        x = self.behind(x + self.encoder_attn(block, memory, source_mask), self.encoder_attn_layer_norm)
        return self.feed_forward(x)

    def _source_memory(self, encoder_states: Tensor | None, cache: EncoderDecoderCache | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, computed once for a sentence."""
        if cache is not None and cache.is_updated.get(self.number):
            layer = cache.cross_attention_cache.layers[self.number]
            return layer.keys, layer.values
        assert encoder_states is not None
        memory: tuple[Tensor, Tensor] = self.encoder_attn.memory(encoder_states)
        if cache is not None:
            memory = cache.cross_attention_cache.update(*memory, self.number)
            cache.is_updated[self.number] = True
        return memory


class Encoder(Embedding):
    """Source tokens to hidden states."""

    main_input_name = "input_ids"

    def __init__(self, config: FairseqConfig) -> None:
        super().__init__(config, "encoder")
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.layer_norm = nn.LayerNorm(config.encoder_embed_dim) if config.encoder_final_norm else None

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, return_dict: bool | None = True, **_: Any
    ) -> BaseModelOutput | tuple[Tensor]:
        """Tokens and mask (1: token, 0: padding), (rows, length) each, to states, (rows, length, width)."""
        x, mask = self.embed(input_ids), _visible(attention_mask)
        for layer in self.layers:
            x = layer(x, mask)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return BaseModelOutput(last_hidden_state=x) if return_dict is not False else (x,)


class Decoder(Embedding):
    """Target tokens and the encoder's states to hidden states and logits."""

    def __init__(self, config: FairseqConfig) -> None:
        super().__init__(config, "decoder")
        width = config.decoder_embed_dim
        self.layers = nn.ModuleList(DecoderLayer(config, number) for number in range(config.decoder_layers))
        self.layer_norm = nn.LayerNorm(width) if config.decoder_final_norm else None
        self.output_projection = nn.Linear(width, config.tgt_vocab_size, bias=False)

    def forward(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = True,
        **_: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions | tuple[Any, ...]:
        """One pass over the tokens, complete sentences or the next tokens of those in the cache.

        Args:
            input_ids: (rows, length).
            encoder_hidden_states: (rows, source length, width); not needed once there is a cache.
            encoder_attention_mask: 1 for a source token, 0 for padding, (rows, source length).
            past_key_values: The cache, changed in place.
            use_cache: Whether to make a cache if there is none.
            return_dict: False for a plain tuple.
        """
        cache = past_key_values
        if cache is None and use_cache:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        past = 0 if cache is None else int(cache.get_seq_length())
        length = input_ids.shape[1]
        x = self.embed(input_ids, past)
        self_mask = None
        if length > 1:  # no token sees those behind it
            self_mask = torch.ones(length, past + length, dtype=torch.bool, device=x.device).tril(past)
        source_mask = _visible(encoder_attention_mask)
        for layer in self.layers:
            x = layer(x, encoder_hidden_states, self_mask, source_mask, cache)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        output = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=x, past_key_values=cache)
        return output if return_dict is not False else output.to_tuple()


class FairseqForTranslation(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A fairseq Transformer that decodes with the `generate` of Transformers."""

    config_class = FairseqConfig
    main_input_name = "input_ids"
    base_model_prefix = ""
    _supports_sdpa = True

    def __init__(self, config: FairseqConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        shared = "decoder.embed_tokens.weight"
        self._tied_weights_keys = {"decoder.output_projection.weight": shared}
        if config.share_all_embeddings:
            self._tied_weights_keys["encoder.embed_tokens.weight"] = shared
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The encoder's embedding matrix."""
        return self.encoder.embed_tokens

    def get_output_embeddings(self) -> nn.Linear:
        """The output projection."""
        return self.decoder.output_projection

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput | tuple[Any, ...]:
        """Logits of the token after each decoder input, (rows, target length, vocabulary).

        Args:
            input_ids: Source tokens, (rows, source length), each sentence ending with the end-of-sentence token.
            attention_mask: 1 for a source token, 0 for padding, (rows, source length).
            decoder_input_ids: (rows, target length); the first of a sentence is the end-of-sentence token.
            encoder_outputs: What the encoder gave, in place of `input_ids`.
            past_key_values: What an earlier call returned, for the tokens that follow.
            use_cache: Whether to return a cache.
            return_dict: False for a plain tuple.
        """
        assert decoder_input_ids is not None
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask)
        decoded = self.decoder(decoder_input_ids, encoder_outputs[0], attention_mask, past_key_values, use_cache)
        x = decoded.last_hidden_state
        # Two-dimensional: torch may turn a three-dimensional product with this matrix into a slow batched one.
        logits = self.decoder.output_projection(x.flatten(0, 1)).view(*x.shape[:2], -1)
        output = Seq2SeqLMOutput(
            logits=logits, past_key_values=decoded.past_key_values, encoder_last_hidden_state=encoder_outputs[0]
        )
        return output if return_dict is not False else output.to_tuple()


def _visible(mask: Tensor | None) -> Tensor | None:
    """A 0/1 mask, (rows, length), as what attention may look at, (rows, 1, 1, length)."""
    return None if mask is None else mask.bool()[:, None, None]

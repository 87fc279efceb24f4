"""The sizes of a Firefox translation model, as a Transformers configuration."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig


class FirefoxConfig(PreTrainedConfig):  # type: ignore[misc]
    """Sizes of the architecture: a Transformer encoder and an SSRU decoder, with one embedding matrix for all uses.

    Args:
        vocab_size: Rows of the embedding matrix.
        d_model: Width of embeddings and layers.
        encoder_layers: Number of encoder layers.
        decoder_layers: Number of decoder layers.
        attention_heads: Heads of self-attention (encoder) and cross-attention (decoder).
        encoder_ffn_dim: Inner width of the encoder's feed-forward blocks.
        decoder_ffn_dim: Inner width of the decoder's feed-forward blocks.
        eos_token_id: The id that ends a sentence.  It also pads, and starts the decoder, which ignores its first id.
    """

    model_type = "firefox_marian"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    def __init__(
        self,
        vocab_size: int = 32000,
        d_model: int = 256,
        encoder_layers: int = 6,
        decoder_layers: int = 2,
        attention_heads: int = 8,
        encoder_ffn_dim: int = 1536,
        decoder_ffn_dim: int = 1536,
        eos_token_id: int = 0,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.encoder_layers = encoder_layers
        self.decoder_layers = decoder_layers
        self.attention_heads = attention_heads
        self.encoder_ffn_dim = encoder_ffn_dim
        self.decoder_ffn_dim = decoder_ffn_dim
        self.eos_token_id = eos_token_id
        self.pad_token_id = kwargs.pop("pad_token_id", eos_token_id)
        self.decoder_start_token_id = kwargs.pop("decoder_start_token_id", eos_token_id)
        self.tie_word_embeddings = kwargs.pop("tie_word_embeddings", True)
        super().__init__(is_encoder_decoder=kwargs.pop("is_encoder_decoder", True), **kwargs)

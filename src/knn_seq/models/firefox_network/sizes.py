"""The sizes of a Firefox translation model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FirefoxSizes:
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

    vocab_size: int = 32000
    d_model: int = 256
    encoder_layers: int = 6
    decoder_layers: int = 2
    attention_heads: int = 8
    encoder_ffn_dim: int = 1536
    decoder_ffn_dim: int = 1536
    eos_token_id: int = 0

    model_type = "firefox_marian"

    @property
    def pad_token_id(self) -> int:
        """The id that pads."""
        return self.eos_token_id

    @property
    def decoder_start_token_id(self) -> int:
        """The id that the decoder begins with."""
        return self.eos_token_id

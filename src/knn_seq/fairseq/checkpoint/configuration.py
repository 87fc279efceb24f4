"""The sizes of a fairseq Transformer, as a Transformers configuration."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from knn_seq.fairseq.dictionary import BOS, EOS, PAD


class FairseqConfig(PreTrainedConfig):  # type: ignore[misc]
    """Sizes and variants of the architecture.

    Args:
        src_vocab_size: Rows of the encoder's embedding matrix.
        tgt_vocab_size: Rows of the decoder's embedding matrix and of the output projection.
        encoder_embed_dim: Width of the encoder.
        decoder_embed_dim: Width of the decoder.
        encoder_layers: Number of encoder layers.
        decoder_layers: Number of decoder layers.
        encoder_attention_heads: Heads of the encoder's self-attention.
        decoder_attention_heads: Heads of the decoder's self-attention and cross-attention.
        encoder_ffn_dim: Inner width of the encoder's feed-forward blocks.
        decoder_ffn_dim: Inner width of the decoder's feed-forward blocks.
        encoder_normalize_before: Norms stand before the encoder's blocks, not behind them.
        decoder_normalize_before: The same for the decoder.
        encoder_final_norm: There is a norm behind the last encoder layer.
        decoder_final_norm: The same for the decoder.
        encoder_positions: sinusoidal, learned or none.
        decoder_positions: The same for the decoder.
        max_source_positions: Tokens that the encoder reads at most.
        max_target_positions: Tokens that the decoder reads at most.
        layernorm_embedding: There is a norm behind the embeddings.
        scale_embedding: Embeddings are multiplied by the square root of their width.
        activation_function: relu or gelu.
        share_all_embeddings: One matrix for both embeddings and the output projection.
        share_decoder_embeddings: One matrix for the decoder's embeddings and the output projection.
    """

    model_type = "fairseq_transformer"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "decoder_embed_dim",
        "num_attention_heads": "decoder_attention_heads",
        "num_hidden_layers": "decoder_layers",
        "vocab_size": "tgt_vocab_size",
    }

    def __init__(
        self,
        src_vocab_size: int = 32000,
        tgt_vocab_size: int = 32000,
        encoder_embed_dim: int = 512,
        decoder_embed_dim: int = 512,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        encoder_attention_heads: int = 8,
        decoder_attention_heads: int = 8,
        encoder_ffn_dim: int = 2048,
        decoder_ffn_dim: int = 2048,
        encoder_normalize_before: bool = False,
        decoder_normalize_before: bool = False,
        encoder_final_norm: bool = False,
        decoder_final_norm: bool = False,
        encoder_positions: str = "sinusoidal",
        decoder_positions: str = "sinusoidal",
        max_source_positions: int = 1024,
        max_target_positions: int = 1024,
        layernorm_embedding: bool = False,
        scale_embedding: bool = True,
        activation_function: str = "relu",
        share_all_embeddings: bool = False,
        share_decoder_embeddings: bool = False,
        **kwargs: Any,
    ) -> None:
        self.src_vocab_size = src_vocab_size
        self.tgt_vocab_size = tgt_vocab_size
        self.encoder_embed_dim = encoder_embed_dim
        self.decoder_embed_dim = decoder_embed_dim
        self.encoder_layers = encoder_layers
        self.decoder_layers = decoder_layers
        self.encoder_attention_heads = encoder_attention_heads
        self.decoder_attention_heads = decoder_attention_heads
        self.encoder_ffn_dim = encoder_ffn_dim
        self.decoder_ffn_dim = decoder_ffn_dim
        self.encoder_normalize_before = encoder_normalize_before
        self.decoder_normalize_before = decoder_normalize_before
        self.encoder_final_norm = encoder_final_norm
        self.decoder_final_norm = decoder_final_norm
        self.encoder_positions = encoder_positions
        self.decoder_positions = decoder_positions
        self.max_source_positions = max_source_positions
        self.max_target_positions = max_target_positions
        self.layernorm_embedding = layernorm_embedding
        self.scale_embedding = scale_embedding
        self.activation_function = activation_function
        self.share_all_embeddings = share_all_embeddings
        self.share_decoder_embeddings = share_decoder_embeddings
        self.bos_token_id = kwargs.pop("bos_token_id", BOS)
        self.pad_token_id = kwargs.pop("pad_token_id", PAD)
        self.eos_token_id = kwargs.pop("eos_token_id", EOS)
        self.decoder_start_token_id = kwargs.pop("decoder_start_token_id", EOS)
        self.tie_word_embeddings = kwargs.pop("tie_word_embeddings", share_all_embeddings or share_decoder_embeddings)
        super().__init__(is_encoder_decoder=kwargs.pop("is_encoder_decoder", True), **kwargs)

    @property
    def max_position_embeddings(self) -> int:
        """Tokens that both sides have positions for."""
        return min(self.max_source_positions, self.max_target_positions)

"""The Firefox translation model in torch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from knn_seq.models.firefox_network.layers import Decoder, Encoder, FirefoxCache, OutputProjection
from knn_seq.models.firefox_network.sizes import FirefoxSizes


@dataclass
class TranslationOutput:
    """What one pass of the network gives."""

    logits: Tensor  # (rows, target length, vocabulary)
    past_key_values: FirefoxCache | None


@dataclass
class GenerationDefaults:
    """What the search has to know of a vocabulary."""

    eos_token_id: int
    suppress_tokens: list[int] = field(default_factory=list)  # never put out


class FirefoxParts(nn.Module):
    """The parts of the network and the way through them, for whichever class holds them."""

    encoder_class = Encoder

    def _make_parts(self, config: FirefoxSizes) -> None:
        # Weights are loaded, not drawn; on the meta device torch would import its compiler to draw these, for seconds.
        empty = torch.empty(config.vocab_size, config.d_model)
        self.shared: nn.Embedding = nn.Embedding.from_pretrained(empty, freeze=False)  # type: ignore[no-untyped-call]
        self.encoder = self.encoder_class(config, self.shared)
        self.decoder = Decoder(config, self.shared)
        self.lm_head = OutputProjection(config.d_model, config.vocab_size)

    def _translate(
        self,
        encoder_states: Tensor,
        attention_mask: Tensor | None,
        decoder_input_ids: Tensor | None,
        past_key_values: FirefoxCache | None,
        use_cache: bool | None,
    ) -> TranslationOutput:
        assert decoder_input_ids is not None
        states, cache = self.decoder(decoder_input_ids, encoder_states, attention_mask, past_key_values, use_cache)
        return TranslationOutput(self.lm_head(states), cache)


class FirefoxNetwork(FirefoxParts):
    """A Firefox translation model without Transformers.

    It is called as a network of Transformers is: the same names of arguments, and the same results.

    Args:
        config: Its sizes.
    """

    def __init__(self, config: FirefoxSizes) -> None:
        super().__init__()
        self.config = config
        self.generation_config = GenerationDefaults(config.eos_token_id)
        self.sensitive = ("qkv", "kv")  # what attention compares: half of the error of 8 bits would come from here
        self.weight_scales: dict[str, Tensor] = {}  # of layers that had 8 bits, by path: `quantize_linears` asks
        self._make_parts(config)
        self.tie_weights()

    def tie_weights(self) -> None:
        """Let all uses of the embedding matrix have the same one; to be called when it was replaced."""
        self.encoder.embed_tokens = self.decoder.embed_tokens = self.shared
        self.lm_head.weight = self.shared.weight

    def get_encoder(self) -> Encoder:
        """What reads the source."""
        return self.encoder

    def get_decoder(self) -> Decoder:
        """What writes the target."""
        return self.decoder

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: tuple[Tensor, ...] | None = None,
        past_key_values: FirefoxCache | None = None,
        use_cache: bool | None = None,
    ) -> TranslationOutput:
        """Logits of the token after each decoder input, (rows, target length, vocabulary).

        Args:
            input_ids: Source ids, (rows, source length), each ending with the end-of-sentence id.
            attention_mask: 1 for a source token, 0 for padding, (rows, source length).
            decoder_input_ids: (rows, target length); the first of a sentence is the start id.
            encoder_outputs: What the encoder gave, in place of `input_ids`.
            past_key_values: What an earlier call returned, for the tokens that follow.
            use_cache: Whether to return a cache.
        """
        encoded = self.encoder(input_ids, attention_mask) if encoder_outputs is None else encoder_outputs
        return self._translate(encoded[0], attention_mask, decoder_input_ids, past_key_values, use_cache)

"""The Firefox translation model in torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from knn_seq.models.firefox_network.layers import Decoder, Encoder, EncoderOutput, FirefoxCache, OutputProjection
from knn_seq.models.firefox_network.search import SearchOutput, beam_search, greedy, sampler, step_by_step
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
    """A Firefox translation model that searches by itself.

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

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, past_key_values: FirefoxCache | None = None, **others: Any
    ) -> dict[str, Any]:
        """The arguments of one step: of prefixes, (rows, t), that are in the cache only the last token is read."""
        tokens = input_ids if past_key_values is None else input_ids[:, -1:]
        return {"decoder_input_ids": tokens, "past_key_values": past_key_values, "use_cache": True, **others}

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: tuple[Tensor, ...] | None = None,
        *,
        max_new_tokens: int,
        num_beams: int = 1,
        num_return_sequences: int = 1,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        length_penalty: float = 1.0,
        return_dict_in_generate: bool = False,
        **others: Any,
    ) -> Tensor | SearchOutput:
        """Translate a batch.

        Args:
            input_ids: Source ids, (batch, source length).
            attention_mask: 1 for a source token, 0 for padding, (batch, source length).
            decoder_input_ids: What each output begins with, (batch, t); None: the start id.
            encoder_outputs: What the encoder gave, in place of `input_ids`.
            max_new_tokens: Tokens of an output at the most.
            num_beams: Prefixes that are kept; 1: only the best.
            num_return_sequences: Outputs for each sentence.
            do_sample: Draw tokens, and search for nothing.
            temperature: Of the drawing.
            top_k: Draw among so many most probable tokens; 0: among all.
            top_p: Draw among the most probable tokens that together have this probability.
            length_penalty: The power of the length that divides an output's log-probability.
            return_dict_in_generate: Return scores, too.
            **others: Arguments that Transformers knows; they must ask for nothing.

        Returns:
            The outputs, (batch × num_return_sequences, longest), filled up with the end-of-sentence id.
        """
        for name, value in others.items():
            if value:
                raise TypeError(f"This network's generate() has no argument '{name}'.")
        encoded = self.encoder(input_ids, attention_mask) if encoder_outputs is None else encoder_outputs
        if decoder_input_ids is None:
            start = torch.tensor([[self.config.decoder_start_token_id]], device=encoded[0].device)
            decoder_input_ids = start.expand(len(encoded[0]), -1)
        rows = num_return_sequences if do_sample else num_beams
        prefixes = decoder_input_ids.repeat_interleave(rows, dim=0)
        state: dict[str, Any] = {
            "encoder_outputs": EncoderOutput(encoded[0].repeat_interleave(rows, dim=0)),
            "attention_mask": None if attention_mask is None else attention_mask.repeat_interleave(rows, dim=0),
        }
        end, banned = self.generation_config.eos_token_id, self.generation_config.suppress_tokens

        def scores(prefixes: Tensor) -> Tensor:
            output = self(**self.prepare_inputs_for_generation(prefixes, **state))
            state["past_key_values"] = output.past_key_values
            return output.logits[:, -1].float()  # type: ignore[no-any-return]

        if num_beams == 1 or do_sample:
            choose = sampler(temperature, top_k, top_p) if do_sample else greedy
            output = step_by_step(scores, prefixes, choose, end, max_new_tokens, banned)
        else:
            output = beam_search(
                scores,
                lambda rows: state["past_key_values"].reorder_cache(rows),
                prefixes,
                num_beams,
                num_return_sequences,
                end,
                max_new_tokens,
                length_penalty,
                banned,
            )
        return output if return_dict_in_generate else output.sequences

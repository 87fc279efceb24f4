from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.models.base import Hypothesis, PairTokenizer, Scored, StepHook, TokenPair
from knn_seq.models.batching import masked_mean, pad
from knn_seq.models.fused import FusedDecoder, FusedEncoder, FusedNetwork, fused_encoder, fused_network
from knn_seq.models.network import NetworkModel
from knn_seq.models.search import RowDecoder, SearchPlan
from knn_seq.models.search.limited_decoder import LimitedDecoder
from knn_seq.models.shortlist import Shortlist
from knn_seq.settings import DecodingSettings, ModelSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig


class EncoderDecoderModel(NetworkModel):
    """A network that reads the source with an encoder: Marian, BART, M2M100, NLLB, FSMT, T5 and their like.

    Args:
        network: The network, in the dtype of its checkpoint.
        tokenizer: Text to tokens and back.
        vocabulary: The vocabulary's fingerprint.
        settings: The key, the device and the dtype to run in.
        prefix: What the decoder reads before the first target token: its start token, and the target language's.
    """

    def __init__(
        self, network: Any, tokenizer: PairTokenizer, vocabulary: str, settings: ModelSettings, prefix: Sequence[int]
    ) -> None:
        self.prefix = list(prefix)
        self.shortlist: Shortlist | None = None  # the tokens that a source can become; None: all
        self._read: tuple[list[Sequence[int]], Tensor] | None = None  # a batch and what the encoder made of it
        self.padding = network.config.pad_token_id or 0
        super().__init__(network, tokenizer, vocabulary, settings)

    def _teacher_forcing(self, pairs: Sequence[TokenPair]) -> tuple[dict[str, Tensor], list[int]]:
        tokens, mask = pad([pair.source for pair in pairs], self.padding, self.device)
        # The decoder sees only what stands before, so its padding, at the end, needs no mask.
        decoder_tokens, _ = pad([[*self.prefix, *pair.target[:-1]] for pair in pairs], self.padding, self.device)
        # An FSMT hides later target tokens only if it is given the source tokens, even where it does not read them.
        inputs = {"input_ids": tokens} | self._encoded([pair.source for pair in pairs], tokens)
        inputs |= {"attention_mask": mask, "decoder_input_ids": decoder_tokens}
        return inputs, [len(self.prefix) - 1] * len(pairs)

    def _decoding_inputs(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        tokens, mask = pad(sources, self.padding, self.device)
        prefix = torch.tensor([self.prefix], device=self.device).expand(len(sources), -1)
        # The target language stands in the prefix, so nothing has to be forced.
        return self._encoded(sources, tokens) | {
            "attention_mask": mask,
            "decoder_input_ids": prefix,
            "forced_bos_token_id": None,
        }

    def _encoded(self, sources: Sequence[Sequence[int]], tokens: Tensor) -> dict[str, Any]:
        """What the encoder makes of a batch, or has made of it if it was the last, or the tokens that it is to read."""
        read, self._read = self._read, None
        if read is not None and read[0] == list(sources):
            return {"encoder_outputs": self._encoder_output(read[1])}
        if self._fused_encoder is not None and self._fused_encoder.reads(sources):
            return {"encoder_outputs": self._encoder_output(self._fused_encoder(sources))}
        return {"input_ids": tokens}

    def _encoder_output(self, states: Tensor) -> Any:
        """The encoder's states, (batch, time, width), as its network hands them on."""
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=states)

    def _plan(self, arguments: dict[str, Any], seed: int | None) -> SearchPlan | None:
        return super()._plan({**arguments, "forced_bos_token_id": None}, seed)

    def _positions(self) -> int | None:
        positions = getattr(self.network.config, "max_position_embeddings", None)
        return None if positions is None else int(positions) - len(self.prefix)

    def _forced_length(self, inputs: dict[str, Any]) -> int:
        return len(self.prefix)

    @property
    def vocabulary_size(self) -> int:
        """Of the tokens that an output may have."""
        return int(self.network.get_output_embeddings().out_features)

    def score(self, pairs: Sequence[TokenPair]) -> Scored:
        """See `Model.score`.  With a shortlist p_MT of any token is relative to the tokens that the source can become.

        Those are what decoding chooses from; others only come in as neighbours' values.
        """
        keys, log_probs = super().score(pairs)
        if self.shortlist is not None:
            rows = torch.split(log_probs, [len(pair.target) for pair in pairs])
            for some, pair in zip(rows, pairs, strict=True):
                allowed = self.shortlist.of(pair.source).to(some.device)
                some.sub_(some[:, allowed].logsumexp(dim=1, keepdim=True))
        return Scored(keys, log_probs)

    def _generate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None,
    ) -> list[list[Hypothesis]]:
        if self.shortlist is not None:
            raise InvalidSetting(
                "A shortlist goes with what knn-seq's own search knows, which the GenerationConfig asks for more than: "
                "leave out --shortlist."
            )
        return super()._generate(sources, decoding, step_hook)

    def row_decoder(self, rows_each: int, attends: bool = False) -> RowDecoder:
        """A lean one, if the network is one of those that there is one for, and need not tell where it looks."""
        if not attends and self._fused is not None:
            return FusedDecoder(self, self._fused, rows_each, self.settings.key)
        decoder = super().row_decoder(rows_each, attends)
        return decoder if self.shortlist is None else LimitedDecoder(decoder, self.shortlist, self.device)

    @cached_property
    def _fused(self) -> FusedNetwork | None:
        return fused_network(self.network, self.settings.key, str(self.settings.dtype))

    @cached_property
    def _fused_encoder(self) -> FusedEncoder | None:
        return fused_encoder(self.network, str(self.settings.dtype))

    def forced_tokens(self, source: Sequence[int]) -> Sequence[int]:
        """The prefix."""
        return self.prefix

    @torch.no_grad()
    def decoding_state(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
        """The encoder's states, (batch, time, width), and the mask of the source."""
        tokens, mask = pad(sources, self.padding, self.device)
        known = self._encoded(sources, tokens).get("encoder_outputs")
        if known is not None:
            return known[0], mask
        return self.network.get_encoder()(input_ids=tokens, attention_mask=mask, return_dict=True)[0], mask

    def sentence_vectors(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """The mean of the encoder's states, which are kept for what comes next with the same batch."""
        states, mask = self.decoding_state(sources)
        self._read = (list(sources), states)
        return masked_mean(states, mask)

    @torch.no_grad()
    def next_logits(self, state: tuple[Tensor, ...], tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """See `NetworkModel.next_logits`."""
        encoded, mask = state
        if cache is None:
            tokens = torch.cat([torch.tensor([self.prefix], device=self.device).expand(len(tokens), -1), tokens], 1)
        output = self.network(
            encoder_outputs=self._encoder_output(encoded),
            attention_mask=mask,
            decoder_input_ids=tokens,
            past_key_values=cache,
            use_cache=True,
        )
        return output.logits[:, -1], output.past_key_values

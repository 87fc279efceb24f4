from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from knn_seq.models.base import PairTokenizer, TokenPair
from knn_seq.models.batching import masked_mean, pad
from knn_seq.models.network import NetworkModel
from knn_seq.settings import ModelSettings


class DecoderOnlyModel(NetworkModel):
    """A language model that reads the source in its prompt: GPT-2, Llama, Qwen and their like.

    Only target tokens have keys; the prompt has none.
    """

    def __init__(self, network: Any, tokenizer: PairTokenizer, vocabulary: str, settings: ModelSettings) -> None:
        padding = network.generation_config.pad_token_id
        super().__init__(network, tokenizer, vocabulary, settings)
        self.padding = self._any_token() if padding is None else padding

    def _teacher_forcing(self, pairs: Sequence[TokenPair]) -> tuple[dict[str, Tensor], list[int]]:
        tokens, mask = pad([[*pair.source, *pair.target[:-1]] for pair in pairs], self._any_token(), self.device)
        return {"input_ids": tokens, "attention_mask": mask}, [len(pair.source) - 1 for pair in pairs]

    def _decoding_inputs(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        tokens, mask = pad(sources, self.padding, self.device, left=True)
        return {"input_ids": tokens, "attention_mask": mask, "pad_token_id": self.padding}

    def _positions(self) -> int | None:
        positions = getattr(self.network.config, "max_position_embeddings", None)
        return None if positions is None else int(positions) // 2  # prompt and output share them

    def _forced_length(self, inputs: dict[str, Any]) -> int:
        return int(inputs["input_ids"].shape[1])

    def forced_tokens(self, source: Sequence[int]) -> Sequence[int]:
        """The prompt."""
        return source

    def decoding_state(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
        """The prompts and their mask, (batch, time)."""
        return pad(sources, self.padding, self.device, left=True)

    @torch.no_grad()
    def sentence_vectors(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """The mean of the last layer's states over the prompt."""
        tokens, mask = pad(sources, self.padding, self.device)
        output = self.network.base_model(input_ids=tokens, attention_mask=mask, use_cache=False)
        return masked_mean(output.last_hidden_state, mask)

    @torch.no_grad()
    def next_logits(self, state: tuple[Tensor, ...], tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """See `NetworkModel.next_logits`."""
        prompts, mask = state
        past = prompts.shape[1] if cache is None else int(cache.get_seq_length())
        written = past - prompts.shape[1] + tokens.shape[1]
        mask = torch.cat([mask, mask.new_ones(len(mask), written)], dim=1)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        if cache is None:
            tokens = torch.cat([prompts, tokens], dim=1)
        output = self.network(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions[:, -tokens.shape[1] :],
            past_key_values=cache,
            use_cache=True,
            **self._last_only,
        )
        return output.logits[:, -1], output.past_key_values

    @cached_property
    def _last_only(self) -> dict[str, int]:
        """What keeps a network from computing logits of a complete prompt."""
        known = inspect.signature(self.network.forward).parameters
        return {"logits_to_keep": 1} if "logits_to_keep" in known else {}

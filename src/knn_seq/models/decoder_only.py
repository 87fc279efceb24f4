from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from knn_seq.models.base import Hypothesis, PairTokenizer, TokenPair
from knn_seq.models.batching import masked_mean, pad
from knn_seq.models.network import NetworkModel
from knn_seq.models.prompt_cache import PromptCache
from knn_seq.models.step import StepHook
from knn_seq.settings import DecodingSettings, ModelSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig


class DecoderOnlyModel(NetworkModel):
    """A language model that reads the source in its prompt: GPT-2, Llama, Qwen and their like.

    Only target tokens have keys; the prompt has none.
    """

    def __init__(self, network: Any, tokenizer: PairTokenizer, vocabulary: str, settings: ModelSettings) -> None:
        padding = network.generation_config.pad_token_id
        positions = getattr(network.config, "max_position_embeddings", None)
        self.window = None if positions is None else int(positions)
        super().__init__(network, tokenizer, vocabulary, settings)
        self.padding = self._any_token() if padding is None else padding
        if tokenizer.end is not None:
            self.end_tokens.add(tokenizer.end)
        self.prompt_cache = PromptCache(self.network)
        self._begun: tuple[Tensor, Any] | None = None  # prompts whose common beginning is in a cache, and that

    def _teacher_forcing(self, pairs: Sequence[TokenPair]) -> tuple[dict[str, Tensor], list[int]]:
        tokens, mask = pad([[*pair.source, *pair.target[:-1]] for pair in pairs], self._any_token(), self.device)
        return {"input_ids": tokens, "attention_mask": mask}, [len(pair.source) - 1 for pair in pairs]

    def _decoding_inputs(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        tokens, mask = pad(sources, self.padding, self.device, left=True)
        return {"input_ids": tokens, "attention_mask": mask, "pad_token_id": self.padding}

    def _positions(self) -> int | None:
        return None if self.window is None else self.window // 2  # prompt and output share them

    def fits(self, source: int, target: int) -> bool:
        """See `Model.fits`: a short target leaves place for a long prompt."""
        return self.window is None or source + target <= self.window

    def _search_arguments(self, decoding: DecodingSettings | GenerationConfig, forced: int) -> dict[str, Any]:
        # The end of an answer in a chat need not be what the network's configuration names.
        return {"eos_token_id": sorted(self.end_tokens), **super()._search_arguments(decoding, forced)}

    def _search(
        self, inputs: dict[str, Any], arguments: dict[str, Any], step_hook: StepHook | None, sentences: int
    ) -> list[Hypothesis]:
        own = self.network.generation_config
        # Whoever asks for a cache of another kind, or for none, gets it.
        if not any(each is False or isinstance(each, str) for each in _cache_settings(arguments, own)):
            copies = max(
                arguments.get(name) or getattr(own, name) or 1 for name in ("num_beams", "num_return_sequences")
            )
            inputs = self.prompt_cache.reuse(inputs, copies)
        return super()._search(inputs, arguments, step_hook, sentences)

    def _forced_length(self, inputs: dict[str, Any]) -> int:
        return int(inputs["input_ids"].shape[1])

    def forced_tokens(self, source: Sequence[int]) -> Sequence[int]:
        """The prompt."""
        return source

    def decoding_state(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
        """The prompts and their mask, (batch, time)."""
        inputs = self.prompt_cache.reuse(self._decoding_inputs(sources), 1)
        cache = inputs.get("past_key_values")
        self._begun = None if cache is None else (inputs["input_ids"], cache)
        return inputs["input_ids"], inputs["attention_mask"]

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
            if self._begun is not None and self._begun[0] is prompts:
                (_, cache), self._begun = self._begun, None
                tokens = tokens[:, cache.get_seq_length() :]
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


def _cache_settings(arguments: dict[str, Any], own: GenerationConfig) -> list[Any]:
    return [
        arguments.get(name) if arguments.get(name) is not None else getattr(own, name, None)
        for name in ("use_cache", "cache_implementation")
    ]

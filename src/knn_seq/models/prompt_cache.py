"""What all prompts of a batch begin with, such as an instruction, is computed once."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

NEARLY_ALL = 0.8  # of the common tokens: if so many are known, the others are read again
LEAST_TOKENS = 8  # that prompts must share: to copy the states of fewer takes as long as to compute them


class PromptCache:
    """Keeps the attention's keys and values of the tokens that prompts have in common, from batch to batch.

    Prompts are padded behind the common tokens, not before them: these stand at the same places in every row.

    Args:
        network: A decoder-only network of Transformers whose layers all attend to all tokens.
    """

    def __init__(self, network: Any) -> None:
        self.network = network
        self._tokens: list[int] = []
        self._last: list[int] = []  # a prompt of the last batch
        self._layers: list[tuple[Tensor, Tensor]] = []  # (1, heads, tokens, width) each

    def reuse(self, inputs: dict[str, Any], copies: int) -> dict[str, Any]:
        """The arguments of generate() with what is known of the prompts' beginning.

        Args:
            inputs: With `input_ids` and `attention_mask`, (prompts, time), padded on the left.
            copies: Rows that generate() makes of each prompt: beams, or samples.
        """
        tokens, mask = inputs["input_ids"], inputs["attention_mask"]
        prompts = [row[row_mask.bool()] for row, row_mask in zip(tokens, mask, strict=True)]
        shared = self._shared([prompt.tolist() for prompt in prompts])
        if len(shared) < LEAST_TOKENS or not self._usable():
            return inputs
        if self._tokens[: len(shared)] != shared:
            self._compute(shared)
        moved, moved_mask = tokens.clone(), mask.clone()
        for row, prompt in enumerate(prompts):
            rest = prompt[len(shared) :]
            gap = slice(len(shared), tokens.shape[1] - len(rest))
            moved[row, : len(shared)] = prompt[: len(shared)]
            moved[row, gap], moved_mask[row, gap] = inputs["pad_token_id"], 0
            moved_mask[row, : len(shared)] = 1
        cache = self._cache(copies * len(prompts), len(shared))
        return {**inputs, "input_ids": moved, "attention_mask": moved_mask, "past_key_values": cache}

    def _shared(self, prompts: list[list[int]]) -> list[int]:
        """What these prompts begin with, all of them, or a single one and the one before it."""
        compared = prompts if len(prompts) > 1 else [*prompts, self._last]
        self._last = prompts[0]
        # The last token of each prompt is left to be read: its state is the first query.
        shared = common_beginning([prompt[:-1] for prompt in compared])
        known = self._tokens
        return known if shared[: len(known)] == known and NEARLY_ALL * len(shared) <= len(known) else shared

    def _usable(self) -> bool:
        kinds = getattr(self.network.config, "layer_types", None) or ()
        return all(kind == "full_attention" for kind in kinds)

    @torch.no_grad()
    def _compute(self, shared: list[int]) -> None:
        tokens = torch.tensor([shared], device=self.network.device)
        cache = self.network.base_model(input_ids=tokens, use_cache=True).past_key_values
        self._layers = [(layer.keys, layer.values) for layer in cache.layers]
        self._tokens = shared

    def _cache(self, rows: int, tokens: int) -> Any:
        """A cache of its own for a search, with the same beginning of so many tokens in every row."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self.network.config)
        for number, (keys, values) in enumerate(self._layers):
            beginning = (part[:, :, :tokens].expand(rows, -1, -1, -1) for part in (keys, values))
            cache.update(*beginning, number)
        return cache


def common_beginning(sequences: list[list[int]]) -> list[int]:
    """The tokens that all sequences begin with."""
    columns = zip(*sequences, strict=False)
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from knn_seq.models.search.decoder import DecoderStep, RowDecoder

if TYPE_CHECKING:
    from knn_seq.models.network import NetworkModel


class NetworkDecoder(RowDecoder):
    """Any network, step by step through its own forward pass.

    All of its sentences begin together, because a network's cache has one length; those that are done leave.

    Args:
        model: The model.
        rows_each: Rows of a sentence.
        attends: Tell where the model looks, if it can.
    """

    def __init__(self, model: NetworkModel, rows_each: int, attends: bool = False) -> None:
        self.model, self.rows_each = model, rows_each
        self.attention_hook = model.attention_hook if attends else None
        self.state: tuple[Tensor, ...] = ()  # what the model knows of the sources; a row each, once there is a cache
        self.cache: Any = None

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """See `RowDecoder.enter`; once."""
        assert not self.state, "the cache has one length for all rows"
        self.state = self.model.decoding_state(sources)

    def step(self, tokens: Tensor) -> DecoderStep:
        """See `RowDecoder.step`."""
        read = tokens.to(self.model.device).unsqueeze(1)
        first = self.cache is None
        if first:  # all rows of a sentence are the same
            read = read[:: self.rows_each, :0]
        attention: Tensor | None = None
        with ExitStack() as hooks:
            key_hook = hooks.enter_context(self.model.key_hook.attached())
            if self.attention_hook is not None:
                hooks.enter_context(self.attention_hook.attached())
            logits, self.cache = self.model.next_logits(self.state, read, self.cache)
            queries = key_hook.states(len(read))[:, -1]
            if self.attention_hook is not None:
                attention = self.attention_hook.weights()
        if first and self.rows_each > 1:
            rows = torch.arange(len(read), device=logits.device).repeat_interleave(self.rows_each)
            self._take(rows)
            logits, queries = logits[rows], queries[rows]
            attention = None if attention is None else attention[rows]
        return DecoderStep(logits, queries, None, attention)

    def follow(self, parents: Tensor) -> None:
        """See `RowDecoder.follow`; what was made of the sources is the same for all rows of a sentence."""
        cache = getattr(self.cache, "self_attention_cache", self.cache)
        cache.reorder_cache(parents.to(self.model.device))

    def keep(self, sentences: Sequence[int]) -> None:
        """See `RowDecoder.keep`."""
        rows = torch.tensor(sentences).unsqueeze(1) * self.rows_each + torch.arange(self.rows_each)
        if self.cache is None:
            rows = torch.tensor(sentences).unsqueeze(1)
        self._take(rows.flatten().to(self.model.device))

    def _take(self, rows: Tensor) -> None:
        self.state = tuple(part[rows] for part in self.state)
        if self.cache is not None:
            self.cache.reorder_cache(rows)

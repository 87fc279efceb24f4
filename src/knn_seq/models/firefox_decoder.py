from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from knn_seq.models.linear import linear_for
from knn_seq.models.search.decoder import DecoderStep, RowDecoder

if TYPE_CHECKING:
    from knn_seq.models.firefox import FirefoxModel

KEYS = ("ffn_in", "ffn_out")


class FirefoxDecoder(RowDecoder):
    """The decoder of a Firefox model for sentences that are at different steps.

    Args:
        model: The model.
        rows_each: Rows of a sentence.
    """

    joins = True

    def __init__(self, model: FirefoxModel, rows_each: int) -> None:
        self.model, self.rows_each = model, rows_each
        self.decoder: Any = model.network.get_decoder()
        self.project = linear_for(model.network.lm_head, model.settings.dtype)
        like, width = self.decoder.embed_tokens.weight, model.network.config.d_model
        heads = model.network.config.attention_heads
        layers = len(self.decoder.layers)
        self.lengths = torch.empty(0, dtype=torch.int64)  # steps of each sentence
        self.states = [like.new_empty(0, width) for _ in range(layers)]  # of the recurrent units, (rows, width)
        # Keys and values of the source, (layers, 2, sentences, heads, length, width / heads), and what is added for
        # those that are none, (sentences, 1, 1, length).
        self.memory = like.new_empty(layers, 2, 0, heads, 0, width // heads)
        self.mask = like.new_empty(0, 1, 1, 0)

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """See `RowDecoder.enter`."""
        states, mask = self.model.decoding_state(sources)
        new = torch.stack([torch.stack(layer.cross_attention.memory(states)) for layer in self.decoder.layers])
        longest = max(new.shape[4], self.memory.shape[4])
        lowest = torch.finfo(states.dtype).min
        hidden = torch.zeros_like(mask, dtype=states.dtype).masked_fill_(mask == 0, lowest)[:, None, None]
        self.memory = torch.cat([_padded(part, 4, longest) for part in (self.memory, new)], dim=2)
        self.mask = torch.cat([_padded(part, 3, longest, lowest) for part in (self.mask, hidden)])
        rows = len(sources) * self.rows_each
        self.states = [torch.cat([state, state.new_zeros(rows, state.shape[1])]) for state in self.states]
        self.lengths = torch.cat([self.lengths, torch.zeros(len(sources), dtype=torch.int64)])

    def step(self, tokens: Tensor) -> DecoderStep:
        """See `RowDecoder.step`."""
        x = self._embed(tokens)
        query = x
        for number, layer in enumerate(self.decoder.layers):
            recurrent, self.states[number] = layer.ssru(x.unsqueeze(1), self.states[number])
            x = layer.ssru_norm(x + recurrent.squeeze(1))
            # The rows of a sentence ask its source together.
            asking = x.view(-1, self.rows_each, x.shape[1])
            found = layer.cross_attention(asking, (self.memory[number, 0], self.memory[number, 1]), self.mask)
            x = layer.cross_attention_norm(x + found.view_as(x))
            last = layer.fc2(torch.relu(layer.fc1(x)))
            query = x if self.model.settings.key == "ffn_in" else last
            x = layer.ffn_norm(x + last)
        self.lengths += 1
        return DecoderStep(self.project(x), query)

    def follow(self, parents: Tensor) -> None:
        """See `RowDecoder.follow`."""
        rows = parents.to(self.model.device)
        self.states = [state.index_select(0, rows) for state in self.states]

    def keep(self, sentences: Sequence[int]) -> None:
        """See `RowDecoder.keep`."""
        kept = torch.tensor(sentences)
        rows = (kept.unsqueeze(1) * self.rows_each + torch.arange(self.rows_each)).flatten().to(self.model.device)
        self.lengths = self.lengths[kept]
        self.states = [state.index_select(0, rows) for state in self.states]
        kept = kept.to(self.model.device)
        self.memory, self.mask = self.memory.index_select(2, kept), self.mask.index_select(0, kept)

    def _embed(self, tokens: Tensor) -> Tensor:
        """(rows,) to (rows, width): nothing is there at the first step but the position."""
        at = self.lengths.repeat_interleave(self.rows_each)
        x: Tensor = self.decoder.embed_tokens(tokens.to(self.model.device))
        first = (at == 0).to(x.device).unsqueeze(1)
        positions = self.decoder.embed_positions(0, int(at.max()) + 1, x)
        return torch.add(positions[at.to(x.device)], x.masked_fill(first, 0.0), alpha=math.sqrt(x.shape[1]))


def _padded(table: Tensor, dimension: int, length: int, value: float = 0.0) -> Tensor:
    """The table with so many places in a dimension, the new ones filled."""
    behind = [0, length - table.shape[dimension]]
    return F.pad(table, [0, 0] * (table.dim() - 1 - dimension) + behind, value=value)

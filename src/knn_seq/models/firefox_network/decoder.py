"""The decoder of a Firefox model, step by step, for sentences that enter and leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knn_seq.models.firefox_network.layers import DecoderLayer, in_lanes
from knn_seq.models.firefox_network.modeling import FirefoxNetwork
from knn_seq.models.linear import linear_for, outputs_of, weight_bytes
from knn_seq.models.search.decoder import DecoderStep, RowDecoder
from knn_seq.models.shortlist import LimitedRows, Shortlist

Encode = Callable[[Sequence[Sequence[int]]], tuple[Tensor, ...]]
"""Sources to the encoder's states, (sentences, length, d), and their mask, (sentences, length)."""


KEYS = ("ffn_in", "ffn_out")


class FirefoxDecoder(RowDecoder):
    """Computes what follows the open prefixes of some sentences.

    Every sentence has the same number of rows, which lie together; what was read of it is kept once for all of them.

    Args:
        network: The network.
        encode: Reads sources.
        rows_each: Rows of a sentence.
        shortlist: Limits what can come; None: the complete vocabulary can.
        key: Where the query is taken, "ffn_in" or "ffn_out".
    """

    joins = True

    def __init__(
        self,
        network: FirefoxNetwork,
        encode: Encode,
        rows_each: int,
        shortlist: Shortlist | None = None,
        key: str = "ffn_in",
    ) -> None:
        self.network, self.encode, self.rows_each = network, encode, rows_each
        self._limits = None if shortlist is None else LimitedRows(shortlist, rows_each, network.lm_head.weight.device)
        modules = cast("list[DecoderLayer]", list(network.decoder.layers))
        self.layers = [_step_of(module, key) for module in modules]
        self._read = [module.cross_attention.memory for module in modules]
        self.scale = math.sqrt(network.config.d_model)
        self.vocabulary_size = network.config.vocab_size
        self.lengths: list[int] = []  # tokens that each sentence has
        self._states: list[Tensor] = []  # of each layer, (rows, d)
        self._memory: list[tuple[Tensor, Tensor]] = []  # of each layer, (sentences, …)
        self._mask = torch.empty(0)  # (sentences, 1, 1, source length)
        self._project: Callable[[Tensor], Tensor] = linear_for(network.lm_head, "")
        self._outputs = torch.empty(0)  # what the last step projected, (rows, d)
        self.source_bytes = weight_bytes(network.encoder)
        self.step_bytes = weight_bytes(network.decoder) + weight_bytes(network.lm_head)

    @torch.no_grad()
    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """Read some sources and add rows for them behind all others."""
        states, mask = self.encode(sources)
        encoded, additive = in_lanes(states, mask)
        new = [read(encoded) for read in self._read]
        rows = encoded.new_zeros(len(sources) * self.rows_each, encoded.shape[2])
        if self.lengths:
            length = max(additive.shape[-1], self._mask.shape[-1])
            lowest = torch.finfo(additive.dtype).min
            self._mask = torch.cat([_wider(part, 3, length, lowest) for part in (self._mask, additive)])
            self._memory = [
                (
                    torch.cat([_wider(old[0], 3, length), _wider(more[0], 3, length)]),
                    torch.cat([_wider(old[1], 2, length), _wider(more[1], 2, length)]),
                )
                for old, more in zip(self._memory, new, strict=True)
            ]
            self._states = [torch.cat([state, rows]) for state in self._states]
        else:
            self._mask, self._memory, self._states = additive, new, [rows] * len(self.layers)
        self.lengths += [0] * len(sources)
        if self._limits is not None:
            self._limits.enter(sources)
            vocabulary = self._limits.columns.vocabulary
            self._project = linear_for(self.network.lm_head, "", vocabulary)
            share = len(vocabulary) / self.network.config.vocab_size
            self.step_bytes = weight_bytes(self.network.decoder) + share * weight_bytes(self.network.lm_head)

    @torch.no_grad()
    def step(self, tokens: Tensor) -> DecoderStep:
        """What follows each prefix, given its last token, (rows,); that of a sentence that has just entered counts not.

        The logits may be written into.
        """
        x = query = looks = self._embed(tokens.to(self._states[0].device))
        for number, layer in enumerate(self.layers):
            x, query, self._states[number], looks = layer(x, self._states[number], self._memory[number], self._mask)
        self.lengths = [length + 1 for length in self.lengths]
        self._outputs, logits = x, self._project(x)
        if self._limits is None:
            return DecoderStep(logits, query, None, looks)
        return DecoderStep(self._limits.ban(logits), query, self._limits.columns.vocabulary, looks)

    def logits_of(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """The logits of any tokens in some rows of the last step, (n,) each."""
        return outputs_of(self.network.lm_head, self._outputs, rows, tokens)

    def follow(self, parents: Tensor) -> None:
        """Let every row continue the prefix of another of its sentence, (rows,)."""
        parents = parents.to(self._states[0].device)
        self._states = [state.index_select(0, parents) for state in self._states]

    def keep(self, sentences: Sequence[int]) -> None:
        """Drop all sentences but these, and have these in this order."""
        kept = torch.tensor(sentences, device=self._mask.device)
        rows = (kept.unsqueeze(1) * self.rows_each + torch.arange(self.rows_each, device=kept.device)).flatten()
        self.lengths = [self.lengths[number] for number in sentences]
        self._states = [state.index_select(0, rows) for state in self._states]
        self._memory = [(k.index_select(0, kept), v.index_select(0, kept)) for k, v in self._memory]
        self._mask = self._mask.index_select(0, kept)
        if self._limits is not None:
            self._limits.keep(sentences)

    def _embed(self, tokens: Tensor) -> Tensor:
        words = self.network.decoder.embed_tokens(tokens)
        first, last = min(self.lengths), max(self.lengths)
        if not first:  # the model starts from a zero vector
            new = torch.tensor(self.lengths, device=words.device).repeat_interleave(self.rows_each) == 0
            words = words.masked_fill(new.unsqueeze(1), 0.0)
        positions = self.network.decoder.embed_positions(0, last + 1, words)
        if first == last:
            return torch.add(positions[last], words, alpha=self.scale)
        at = torch.tensor(self.lengths, device=words.device).repeat_interleave(self.rows_each)
        return torch.add(positions[at], words, alpha=self.scale)


LayerStep = Callable[[Tensor, Tensor, tuple[Tensor, Tensor], Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]
"""(rows, d), the SSRU's state, memory and mask of the sentences to outputs, queries and the new state, (rows, d).

And to the weights of the first head of cross-attention, (rows, source length), which in the last layer aligns words.
"""


def _step_of(layer: DecoderLayer, key: str) -> LayerStep:
    """A layer's computation for one position: what `DecoderLayer.forward` computes, in fewer calls."""
    attention = layer.cross_attention
    recur, ask, attend, first, last = (
        linear_for(module, "") for module in (layer.ssru.zf, attention.q, attention.out, layer.fc1, layer.fc2)
    )
    recur_norm, attend_norm, last_norm = map(_norm, (layer.ssru_norm, layer.cross_attention_norm, layer.ffn_norm))

    def step(
        x: Tensor, state: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        k, v = memory
        sentences, heads, width, length = k.shape
        rows, d = x.shape
        each, both = rows // sentences, recur(x)
        state = torch.lerp(both[:, :d], state, torch.sigmoid(both[:, d:]))
        x = recur_norm(torch.relu(state).add_(x))
        asked = ask(x)
        if each > 1:
            asked = asked.view(sentences, each, heads, width).transpose(1, 2)
        scores = torch.bmm(asked.reshape(sentences * heads, each, width), k.view(sentences * heads, width, length))
        scores.view(sentences, heads * each, length).add_(mask.view(sentences, 1, length))
        weights = torch.softmax(scores, dim=-1)
        found = torch.bmm(weights, v.view(sentences * heads, length, width))
        if each > 1:
            found = found.view(sentences, heads, each, width).transpose(1, 2)
        x = attend_norm(attend(found.reshape(rows, d)).add_(x))
        made = last(first(x).relu_())
        looks = weights.view(sentences, heads, each, length)[:, 0].reshape(rows, length)
        return last_norm(x + made), (made if key == "ffn_out" else x), state, looks

    return step


def _norm(module: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    shape, weight, bias, eps = module.normalized_shape, module.weight, module.bias, module.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


def _wider(part: Tensor, dim: int, length: int, value: float = 0.0) -> Tensor:
    """A tensor with more places at the end of a dimension of its last two."""
    missing = length - part.shape[dim]
    return F.pad(part, (0, missing) if dim == 3 else (0, 0, 0, missing), value=value) if missing else part

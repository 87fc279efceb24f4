from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from knn_seq.models.batching import spans
from knn_seq.models.fused.cache import BeamCache
from knn_seq.models.fused.network import FusedLayer, FusedNetwork
from knn_seq.models.linear import Linear, weight_bytes
from knn_seq.models.search.decoder import DecoderStep, RowDecoder
from knn_seq.models.shortlist import LimitedRows

if TYPE_CHECKING:
    from knn_seq.models.encoder_decoder import EncoderDecoderModel


class FusedDecoder(RowDecoder):
    """The decoder of Marian, BART, mBART, M2M100 and their like, for sentences that are at different steps.

    Args:
        model: Reads the sources.
        network: Its decoder.
        rows_each: Rows of a sentence.
        key: Where the query is taken, "ffn_in" or "ffn_out".
    """

    joins = True

    def __init__(self, model: EncoderDecoderModel, network: FusedNetwork, rows_each: int, key: str) -> None:
        self.model, self.network, self.rows_each, self.key = model, network, rows_each, key
        self.size = network.width // network.heads
        like = model.network.get_decoder().embed_tokens.weight
        self.vocabulary_size = len(like)
        shortlist = model.shortlist
        self._limits = None if shortlist is None else LimitedRows(shortlist, rows_each, like.device)
        self._project: Linear = network.project
        self._states = like.new_empty(0)  # what the last step projected, (rows, width)
        self.source_bytes = weight_bytes(model.network.get_encoder())
        self.cache = BeamCache(len(network.layers), network.heads, self.size, rows_each, like)

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """See `RowDecoder.enter`."""
        states, mask = self.model.decoding_state(sources)
        lengths = [len(source) for source in sources]
        row, place = spans([0] * len(lengths), lengths, states.device)
        kept = row * mask.shape[1] + place  # no padding
        rows = states.flatten(0, 1)[kept]
        memory = []
        for layer in self.network.layers:
            both = states.new_zeros(mask.numel(), 2 * self.network.width).index_copy_(0, kept, layer.memory(rows))
            keys, values = both.view(*mask.shape, 2, self.network.heads, self.size).permute(2, 0, 3, 1, 4)
            memory.append((keys, values))
        if self._limits is not None:
            self._limits.enter(sources)
            self._project = self.network.project.limited(self._limits.columns.vocabulary)
        first = len(self.cache.lengths)
        self.cache.enter(memory, mask, lengths)
        new = slice(first, len(self.cache.lengths))
        for token in self.model.prefix[:-1]:
            self._run(torch.full(((new.stop - new.start) * self.rows_each,), token, device=states.device), new)

    def step(self, tokens: Tensor) -> DecoderStep:
        """See `RowDecoder.step`."""
        self._states, queries = self._run(tokens.to(self.model.device), slice(0, len(self.cache.lengths)))
        logits = self._project(self._states)
        if self._limits is None:
            return DecoderStep(logits, queries)
        return DecoderStep(self._limits.ban(logits), queries, self._limits.columns.vocabulary)

    def logits_of(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """See `RowDecoder.logits_of`."""
        return self.network.project.some(self._states, rows, tokens)

    def follow(self, parents: Tensor) -> None:
        """See `RowDecoder.follow`."""
        self.cache.follow(parents)

    def keep(self, sentences: Sequence[int]) -> None:
        """See `RowDecoder.keep`."""
        self.cache.keep(sentences)
        if self._limits is not None:
            self._limits.keep(sentences)

    def _run(self, tokens: Tensor, sentences: slice) -> tuple[Tensor, Tensor]:
        """The states before the output projection and the queries, (rows, width) each."""
        at = torch.tensor(self.cache.lengths[sentences], device=tokens.device).repeat_interleave(self.rows_each)
        own_mask, source_mask = self.cache.begin(sentences)
        x, query = self.network.embed(tokens, at), tokens
        for number, layer in enumerate(self.network.layers):
            x, query = self._layer(number, layer, x, own_mask, source_mask)
        return (x if self.network.final_norm is None else self.network.final_norm(x)), query

    def _layer(
        self, number: int, layer: FusedLayer, x: Tensor, own_mask: Tensor | None, source_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(rows, width) to the same, and the query."""
        heads, before = self.network.heads, self.network.pre_norm
        block = layer.attention_norm(x) if before else x
        q, k, v = layer.qkv(block).view(-1, self.rows_each, 3, heads, self.size).unbind(2)
        x = x + layer.out(self._attend(q, self.cache.add(number, k, v), own_mask))
        if not before:
            x = layer.attention_norm(x)
        block = layer.cross_norm(x) if before else x
        q = layer.query(block).view(-1, self.rows_each, heads, self.size)
        x = x + layer.cross_out(self._attend(q, self.cache.memory(number), source_mask))
        if not before:
            x = layer.cross_norm(x)
        block = layer.ffn_norm(x) if before else x
        last = layer.last(layer.activation(layer.first(block)))
        x = x + last
        if not before:
            x = layer.ffn_norm(x)
        return x, block if self.key == "ffn_in" else last

    def _attend(self, queries: Tensor, past: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """(sentences, rows_each, heads, size) to (rows, width)."""
        found = F.scaled_dot_product_attention(queries.transpose(1, 2), *past, attn_mask=mask)
        return found.transpose(1, 2).reshape(-1, self.network.width)

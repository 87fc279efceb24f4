"""What a decoder looks at in the source: the weights of one of its cross-attentions, computed again beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

CROSS_ATTENTION_NAMES = ("encoder_attn", "EncDecAttention", "cross_attention", "crossattention")
# These were trained so that the first head of their last layer aligns words.
ALIGNED_BY_FIRST_HEAD = ("marian", "firefox_marian")
LAYERS_FOR_PENULTIMATE = 3  # of a decoder: from so many on the last but one aligns better than the last


class AttentionHook:
    """Takes the weights of a cross-attention out of a forward pass.

    Fast kernels do not tell weights, so the scores of one step are computed again, for as few heads as are needed; the
    projected keys of the source are kept from step to step.

    Args:
        module: The cross-attention, with projections of its own for queries and keys.
        heads: How many of its heads, from the first on, are looked at; their mean counts.
        time_major: The network runs (time, batch, dimension).
    """

    def __init__(self, module: Any, heads: int, time_major: bool = False) -> None:
        self._module, self._heads, self._time_major = module, heads, time_major
        self._query = getattr(module, "q_proj", None) or module.q
        all_heads = next(getattr(module, name) for name in ("num_heads", "n_heads", "heads") if hasattr(module, name))
        self._width = self._query.out_features // all_heads
        self._scale = float(getattr(module, "scaling", self._width**-0.5))
        self._seen: tuple[Tensor, Any, Tensor | None] | None = None  # inputs of the last forward pass
        self._source: Tensor | None = None  # whose keys these are
        self._keys: Tensor | None = None  # (rows, heads, width, source length)

    @classmethod
    def of(cls, network: Any, decoder: nn.Module, time_major: bool = False) -> AttentionHook | None:
        """That of a network's decoder; None: it has no cross-attention, or none that is known here."""
        found = [
            module
            for path, module in decoder.named_modules()
            if path.rsplit(".", 1)[-1] in CROSS_ATTENTION_NAMES and hasattr(module, "forward") and _has_queries(module)
        ]
        if not found:
            return None
        if network.config.model_type in ALIGNED_BY_FIRST_HEAD:
            return cls(found[-1], 1, time_major)
        module = found[-2] if len(found) >= LAYERS_FOR_PENULTIMATE else found[-1]
        every = next(getattr(module, name) for name in ("num_heads", "n_heads", "heads") if hasattr(module, name))
        return cls(module, every, time_major)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """While inside, `weights` tells of the last forward pass."""
        handle = self._module.register_forward_pre_hook(self._take, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
            self._seen = self._source = self._keys = None

    def weights(self) -> Tensor:
        """How much the last target position looks at each source token, (rows, source length) float32."""
        return self._weights(last=True)[:, 0]

    def all_weights(self) -> Tensor:
        """The same of every target position, (rows, target length, source length)."""
        return self._weights(last=False)

    @torch.no_grad()
    def _weights(self, last: bool) -> Tensor:
        assert self._seen is not None, "no forward pass reached the cross-attention"
        states, source, mask = self._seen
        if self._source is None or source.data_ptr() != self._source.data_ptr() or source.shape != self._source.shape:
            self._source, self._keys = source, self._projected(source)  # kept, so that no other takes its place
        if self._time_major:
            states = states.transpose(0, 1)
        states = states[:, -1:] if last else states  # (rows, positions, dimension)
        asked: Tensor = self._query(states)[..., : self._heads * self._width]
        queries = asked.reshape(*asked.shape[:2], self._heads, self._width).transpose(1, 2)
        assert self._keys is not None
        scores: Tensor = (queries @ self._keys).float()  # (rows, heads, positions, source length)
        if mask is not None:
            scores = _masked(scores, mask)
        weights = scores.softmax(dim=-1)
        return weights[:, 0] if self._heads == 1 else weights.mean(dim=1)

    def _take(self, module: Any, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        states = inputs[0] if inputs else named.get("hidden_states", named.get("query"))
        source = next((named[name] for name in ("key_value_states", "key") if name in named), None)
        mask = next((named[name] for name in ("attention_mask", "mask", "key_padding_mask") if name in named), None)
        if source is None:  # ours: the memory's keys and values, and the mask
            source = inputs[1][0]
            mask = inputs[2] if len(inputs) > 2 else mask
        assert states is not None
        self._seen = states, source, mask

    def _projected(self, source: Tensor) -> Tensor:
        """The keys of the source with the scale of the scores."""
        if source.dim() == 4:  # they are that already
            return source[:, : self._heads]
        project = getattr(self._module, "k_proj", None) or self._module.k
        keys: Tensor = project(source)[..., : self._heads * self._width]
        if self._time_major:
            keys = keys.transpose(0, 1)
        heads = keys.reshape(*keys.shape[:2], self._heads, self._width)
        return heads.permute(0, 2, 3, 1).contiguous() * self._scale


def _has_queries(module: Any) -> bool:
    return hasattr(module, "q_proj") or hasattr(module, "q")


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores without those of padding, whichever kind of mask says so."""
    if mask.dim() == 2:  # True: padding
        return scores.masked_fill(mask[:, None, None], -torch.inf)
    mask = mask[:, :, -1:, : scores.shape[-1]]
    if mask.dtype == torch.bool:  # True: a token
        return scores.masked_fill(~mask, -torch.inf)
    return scores + mask.float()

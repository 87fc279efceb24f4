"""The vectors of any encoder that Transformers loads: by hub name or from a local folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.models import Model, Source
from knn_seq.models.batching import masked_mean, pad
from knn_seq.sentences.base import SENTENCES
from knn_seq.sentences.vectors import VectorSearch

POOLINGS = ("mean", "first")


@SENTENCES.register("transformers")
class TransformersSearch(VectorSearch):
    """The states of an encoder's last layer: their mean, or that of the first token.

    Args:
        option: NAME, NAME:mean or NAME:first, with ":l2" behind or not.  Of an encoder-decoder only the encoder is
            used.
        model: The translation model, on whose device the encoder runs.
    """

    def __init__(self, option: str, model: Model) -> None:
        super().__init__(option, model)
        name, _, pooling = self.option.rpartition(":")
        self.name, self.pooling = (name, pooling) if pooling in POOLINGS else (self.option, "mean")
        if not self.name:
            raise InvalidSetting(
                "The sentence search 'transformers' needs an encoder: write transformers:NAME, or "
                "transformers:NAME:first for the first token instead of the mean."
            )
        self.device = torch.device(getattr(model, "device", "cpu"))

    @torch.no_grad()
    def encode(self, sources: Sequence[Source]) -> Tensor:
        """See `VectorSearch.encode`."""
        tokenizer, encoder, longest = self._loaded
        padding = tokenizer.pad_token_id or 0
        texts = [source.text for source in sources]
        tokens = tokenizer(texts, truncation=True, max_length=longest, return_attention_mask=False)["input_ids"]
        padded, mask = pad([row or [padding] for row in tokens], padding, self.device)
        states = encoder(input_ids=padded, attention_mask=mask, return_dict=True)[0]
        return masked_mean(states, mask) if self.pooling == "mean" else states[:, 0].float()

    @cached_property
    def _loaded(self) -> tuple[Any, Any, int]:
        """The tokenizer, the encoder, and how many tokens it can read."""
        import transformers

        transformers.utils.logging.disable_progress_bar()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.name)
            network = transformers.AutoModel.from_pretrained(self.name, dtype=torch.float32)
        except Exception as error:  # of the hub, of files, of formats: they have no class in common
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidSetting(
                f"The encoder '{self.name}' of the sentence search cannot be loaded: {reason}"
            ) from error
        longest = min(tokenizer.model_max_length, _positions(network))
        encoder = network.get_encoder() if network.config.is_encoder_decoder else network
        return tokenizer, encoder.to(self.device).eval(), longest


def _positions(network: Any) -> int:
    positions = getattr(network.config, "max_position_embeddings", None) or -1
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            positions -= module.padding_idx + 1  # RoBERTa and its like count from behind the padding's position
    return positions if positions > 0 else sys.maxsize

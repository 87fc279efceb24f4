"""The ensemble that fairseq's own search decodes with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from fairseq.sequence_generator import EnsembleModel, EnsembleModelWithAlignment
from torch import Tensor

from knn_seq.decoding import KnnBatch, KnnDecoder
from knn_seq.fairseq.generate.network import FairseqNetwork
from knn_seq.models import Source, Step
from knn_seq.settings import SearchSettings


class EncodedBatch(list[dict[str, list[Tensor]]]):
    """What each model's encoder made of a batch, and whose its rows are.

    fairseq copies the rows for the beams, follows the beams with them and takes finished sentences away; the sentence
    numbers go with them because they are here.

    Args:
        encoded: The outputs of the encoders, one a model.
        sentences: Each row's sentence in the batch, (rows,), on the CPU.
        hooks: What adds neighbours to the steps of each group of models; None: nothing does.
    """

    def __init__(
        self, encoded: Iterable[dict[str, list[Tensor]]], sentences: Tensor, hooks: list[KnnBatch | None]
    ) -> None:
        super().__init__(encoded)
        self.sentences, self.hooks = sentences, hooks


class KnnEnsemble(EnsembleModelWithAlignment):  # type: ignore[misc]
    """Models whose common distribution is mixed with that of neighbours.

    With one decoder the first model asks for all, and what is mixed is the mean of the models.  With one for each model
    everyone is mixed with its own neighbours, and the mean is taken after that.

    Args:
        models: fairseq's models.
        decoders: One, or as many as there are models.
        settings: Those of each decoder.
        text: A source's text from its tokens.
        padding: The number of the padding token.
    """

    def __init__(
        self,
        models: Sequence[Any],
        decoders: Sequence[KnnDecoder],
        settings: Sequence[SearchSettings],
        text: Callable[[list[int]], str],
        padding: int,
    ) -> None:
        super().__init__(models)
        self.decoders, self.settings, self.text, self.padding = list(decoders), list(settings), text, padding
        self.size = len(models) // len(self.decoders)  # models that one decoder is for
        # fairseq computes the distribution of such a group, its mean included; a plain list registers no module twice.
        self.groups = [EnsembleModel(models[i : i + self.size]) for i in range(0, len(models), self.size)]

    def forward_encoder(self, net_input: dict[str, Tensor]) -> EncodedBatch:
        """Read a batch, and get ready to search for its sentences."""
        encoded = super().forward_encoder(net_input)
        tokens = [row[row != self.padding].tolist() for row in net_input["src_tokens"].cpu()]
        sources = [Source(self.text(sentence), sentence) for sentence in tokens]
        for decoder, its_own in zip(self.decoders, encoded[:: self.size], strict=True):
            _network(decoder).remember(tokens, its_own)
            decoder.refresh()
        hooks = [
            decoder.batch(sources, settings) for decoder, settings in zip(self.decoders, self.settings, strict=True)
        ]
        return EncodedBatch(encoded, torch.arange(len(sources)), hooks)

    def reorder_encoder_out(self, encoder_outs: EncodedBatch, new_order: Tensor) -> EncodedBatch:
        """The batch with row new_order[i] of the old as row i of the new."""
        encoded = super().reorder_encoder_out(encoder_outs, new_order)
        return EncodedBatch(encoded, encoder_outs.sentences[new_order.cpu()], encoder_outs.hooks)

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: EncodedBatch,
        incremental_states: list[dict[str, Any]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, Tensor | None]:
        """One step.

        Args:
            tokens: The prefixes, what is forced before them included, (rows, 1 + t).
            encoder_outs: What `forward_encoder` gave, in the order of the rows.
            incremental_states: The decoders' caches, one a model.
            temperature: Of the models' softmax, not of the neighbours'.

        Returns:
            log p of the next token, (rows, vocabulary), and the attention to the source, (rows, source length).
        """
        log_probs, attentions = [], []
        for number, (group, decoder) in enumerate(zip(self.groups, self.decoders, strict=True)):
            part = slice(number * self.size, (number + 1) * self.size)
            with _network(decoder).key_hook.attached() as key_hook:
                its_own, attention = group.forward_decoder(
                    tokens, encoder_outs[part], incremental_states[part], temperature
                )
                queries = key_hook.states(len(tokens))[:, -1]
            step = Step(queries, its_own.float(), tokens[:, 1:], encoder_outs.sentences)
            hook = encoder_outs.hooks[number]
            log_probs.append(step.log_probs if hook is None else hook(step))
            attentions.append(attention)
        if len(self.groups) == 1:
            return log_probs[0], attentions[0]
        mean = torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(len(log_probs))
        return mean, None if None in attentions else torch.stack(attentions).mean(dim=0)


def _network(decoder: KnnDecoder) -> FairseqNetwork:
    assert isinstance(decoder.model, FairseqNetwork)
    return decoder.model

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from knn_seq.errors import KnnSeqError
from knn_seq.fairseq.dictionary import EOS
from knn_seq.models import Model
from knn_seq.models.base import Hypothesis, Scored, TokenPair
from knn_seq.models.batching import masked_mean, pad, spans
from knn_seq.models.key_hook import KeyFound, KeyHook
from knn_seq.models.step import StepHook
from knn_seq.settings import DecodingSettings, ModelSettings


class FairseqNetwork(Model):
    """A model that fairseq has loaded, as datastores and retrievers see it; fairseq itself searches with it.

    It has no tokenizer, for fairseq reads the text, and no fingerprint: see `require_fitting`.

    Args:
        network: fairseq's encoder-decoder.
        key: Where the query is.
        prefix: What the decoder reads before the first target token.
        padding: The number of the padding token.
    """

    def __init__(self, network: Any, key: str, prefix: Sequence[int], padding: int) -> None:
        self.network, self.prefix, self.padding = network, list(prefix), padding
        self.settings = ModelSettings("fairseq's --path", key=key)
        self.architecture = type(network).__name__
        self.max_length = min(network.max_positions())
        self.device = next(network.parameters()).device
        self.key_hook = KeyHook(network, network.decoder, key, time_major=True)
        self.dimension = self.keys([TokenPair([EOS], [EOS])]).shape[1]
        self._read: tuple[list[list[int]], dict[str, Any]] | None = None

    @torch.no_grad()
    def keys(self, pairs: Sequence[TokenPair]) -> Tensor:
        """See `Model.keys`."""
        with self.key_hook.attached(stop=True):
            with suppress(KeyFound):
                self._run(pairs)
            return self.key_hook.states(len(pairs))[self._target_places(pairs)]

    @torch.no_grad()
    def score(self, pairs: Sequence[TokenPair]) -> Scored:
        """See `Model.score`."""
        places = self._target_places(pairs)
        with self.key_hook.attached():
            log_probs = self.network.get_normalized_probs(self._run(pairs), log_probs=True).float()[places]
            keys = self.key_hook.states(len(pairs))[places]
        return Scored(keys, log_probs)

    def remember(self, sources: list[list[int]], encoded: dict[str, Any]) -> None:
        """Keep what the encoder made of a batch: sentence vectors may be wanted of it."""
        self._read = (sources, encoded)

    @torch.no_grad()
    def sentence_vectors(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """See `Model.sentence_vectors`."""
        if self._read is None or self._read[0] != list(sources):
            self.remember([list(source) for source in sources], self._encode(sources))
        assert self._read is not None
        encoded = self._read[1]
        return masked_mean(encoded["encoder_out"][0].transpose(0, 1), ~encoded["encoder_padding_mask"][0])

    def generate(
        self, sources: Sequence[Sequence[int]], decoding: DecodingSettings | Any, step_hook: StepHook | None = None
    ) -> list[list[Hypothesis]]:
        """That is what fairseq does."""
        raise KnnSeqError("A model that fairseq has loaded is searched by fairseq: use `fairseq-generate`.")

    def _encode(self, sources: Sequence[Sequence[int]]) -> Any:
        tokens, mask = pad(sources, self.padding, self.device)
        return self.network.encoder(tokens, src_lengths=mask.sum(dim=1))

    def _run(self, pairs: Sequence[TokenPair]) -> Any:
        encoded = self._encode([pair.source for pair in pairs])
        tokens, _ = pad([[*self.prefix, *pair.target[:-1]] for pair in pairs], self.padding, self.device)
        return self.network.decoder(tokens, encoder_out=encoded)

    def _target_places(self, pairs: Sequence[TokenPair]) -> tuple[Tensor, Tensor]:
        return spans([len(self.prefix) - 1] * len(pairs), [len(pair.target) for pair in pairs], self.device)

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting, ModelMismatch
from knn_seq.models.base import Hypothesis, Model, Scored, Step, StepHook, TokenPair, in_batches, wants_attention
from knn_seq.models.log_probs import log_softmax
from knn_seq.models.network import NetworkModel, search_all, token_budget
from knn_seq.models.prefixes import PrefixRows
from knn_seq.models.search import DecoderStep, RowDecoder
from knn_seq.settings import DecodingSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig


class Ensemble(Model):
    """Models with one vocabulary that decide together: p_MT is the mean of their distributions.

    The first leads: its states are the queries, and where its generate() has to search, the others follow its beams.

    Args:
        models: Two models or more.
    """

    def __init__(self, models: Sequence[NetworkModel]) -> None:
        self.lead, *self.followers = models
        for model in models:
            if model.settings.shortlist:
                raise InvalidSetting("The models of an ensemble choose among all words: leave out --shortlist.")
        for model in self.followers:
            if model.fingerprint.vocabulary != self.lead.fingerprint.vocabulary:
                raise ModelMismatch(
                    f"{model.settings.name} cannot join an ensemble with {self.lead.settings.name}: "
                    "their vocabularies differ."
                )
        self.settings = self.lead.settings
        self.tokenizer = self.lead.tokenizer
        self.fingerprint = self.lead.fingerprint
        self.architecture = self.lead.architecture
        self.dimension = self.lead.dimension
        self.device = self.lead.device
        self.window = self.lead.window
        self.max_length = min((model.max_length for model in models if model.max_length is not None), default=None)

    @property
    def source_language(self) -> str | None:
        """The first one's."""
        return self.lead.source_language

    @property
    def target_language(self) -> str | None:
        """The first one's."""
        return self.lead.target_language

    def fits(self, source: int, target: int) -> bool:
        """Whether all of them can."""
        return all(model.fits(source, target) for model in (self.lead, *self.followers))

    @classmethod
    def of(cls, models: Sequence[Model]) -> Ensemble:
        """An ensemble of models that can follow each other's beams; an `InvalidSetting` if one cannot."""
        networks = [model for model in models if isinstance(model, NetworkModel)]
        for model in models:
            if not isinstance(model, NetworkModel):
                raise InvalidSetting(f"{model.settings.name} cannot join an ensemble: its decoding cannot be followed.")
        return cls(networks)

    def keys(self, pairs: Sequence[TokenPair]) -> Tensor:
        """The lead's keys."""
        return self.lead.keys(pairs)

    def score(self, pairs: Sequence[TokenPair]) -> Scored:
        """The lead's keys and the mean distribution's log-probabilities."""
        keys, log_probs = self.lead.score(pairs)
        others = [model.score(pairs).log_probs.to(log_probs.device) for model in self.followers]
        return Scored(keys, _log_mean([log_probs, *others]))

    def attention(self, pairs: Sequence[TokenPair]) -> list[Tensor] | None:
        """The lead's."""
        return self.lead.attention(pairs)

    def sentence_vectors(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """The lead's."""
        return self.lead.sentence_vectors(sources)

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None = None,
    ) -> list[list[Hypothesis]]:
        """The lead's search over the mean distribution."""
        found = dict(self.generate_stream(sources, decoding, step_hook, max(len(sources), 1)))
        return [found[number] for number in range(len(sources))]

    def generate_stream(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None = None,
        batch_size: int = DecodingSettings.batch_size,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """See `Model.generate_stream`."""
        plans = self.lead.search_plans(sources, decoding)
        if plans is not None:
            open_decoder = partial(self.row_decoder, attends=wants_attention(step_hook))
            yield from search_all(
                self.lead, open_decoder, sources, plans, step_hook, batch_size, token_budget(decoding)
            )
        else:
            yield from in_batches(partial(self._generate, decoding=decoding), sources, step_hook, batch_size)

    def row_decoder(self, rows_each: int, attends: bool = False) -> EnsembleDecoder:
        """All models side by side; the first tells where it looks, if that is asked."""
        followers = [model.row_decoder(rows_each) for model in self.followers]
        return EnsembleDecoder([self.lead.row_decoder(rows_each, attends), *followers])

    def _generate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None,
    ) -> list[list[Hypothesis]]:
        """With generate() of the lead, which the others follow."""
        followers = [Follower(model, sources) for model in self.followers]

        def mean_step(step: Step) -> Tensor:
            device = step.log_probs.device
            others = [follower.log_probs(step).to(device) for follower in followers]
            together = replace(step, log_probs=_log_mean([step.log_probs, *others]))
            return together.log_probs if step_hook is None else step_hook(together)

        mean_step.wants_attention = wants_attention(step_hook)  # type: ignore[attr-defined]
        return self.lead._generate(sources, decoding, mean_step)


class EnsembleDecoder(RowDecoder):
    """Decoders whose distributions are averaged; the queries are the first one's."""

    def __init__(self, decoders: Sequence[RowDecoder]) -> None:
        self.decoders = decoders
        self.rows_each = decoders[0].rows_each
        self.joins = all(decoder.joins for decoder in decoders)

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """See `RowDecoder.enter`."""
        for decoder in self.decoders:
            decoder.enter(sources)

    def step(self, tokens: Tensor) -> DecoderStep:
        """See `RowDecoder.step`; logarithms of probabilities are logits, too."""
        logits, queries, _, attention = self.decoders[0].step(tokens)
        others = [decoder.step(tokens).logits.to(logits.device) for decoder in self.decoders[1:]]
        return DecoderStep(
            _log_mean([log_softmax(each.float()) for each in (logits, *others)]), queries, None, attention
        )

    def follow(self, parents: Tensor) -> None:
        """See `RowDecoder.follow`."""
        for decoder in self.decoders:
            decoder.follow(parents)

    def keep(self, sentences: Sequence[int]) -> None:
        """See `RowDecoder.keep`."""
        for decoder in self.decoders:
            decoder.keep(sentences)


def _log_mean(log_probs: Sequence[Tensor]) -> Tensor:
    return torch.logsumexp(torch.stack(list(log_probs)), dim=0) - math.log(len(log_probs))


class Follower:
    """A model that computes its distribution for beams that another model chose.

    Args:
        model: The model.
        sources: The batch.
    """

    def __init__(self, model: NetworkModel, sources: Sequence[Sequence[int]]) -> None:
        self.model = model
        self.inputs = model.decoding_state(sources)
        self.cache: Any = None
        self.prefixes = PrefixRows()

    @torch.no_grad()
    def log_probs(self, step: Step) -> Tensor:
        """log p_MT of this model after each row's prefix, (rows, vocabulary) float32."""
        sentences, prefixes = step.sentences.to(self.model.device), step.prefixes.to(self.model.device)
        parents = self.prefixes.parents(sentences, prefixes)
        if self.cache is not None:
            self.cache.reorder_cache(torch.from_numpy(parents).to(self.model.device))
        tokens = prefixes if self.cache is None else prefixes[:, -1:]
        logits, self.cache = self.model.next_logits(tuple(part[sentences] for part in self.inputs), tokens, self.cache)
        return torch.log_softmax(logits.float(), dim=-1)

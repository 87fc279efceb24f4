from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting, ModelMismatch
from knn_seq.models.base import Hypothesis, Model, Scored, Step, StepHook, TokenPair
from knn_seq.models.network import NetworkModel
from knn_seq.settings import DecodingSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig


class Ensemble(Model):
    """Models with one vocabulary that decide together: p_MT is the mean of their distributions.

    The first leads: its generate() searches and its states are the queries; the others follow its beams step by step.

    Args:
        models: Two models or more.
    """

    def __init__(self, models: Sequence[NetworkModel]) -> None:
        self.lead, *self.followers = models
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
        self.max_length = min((model.max_length for model in models if model.max_length is not None), default=None)

    @property
    def source_language(self) -> str | None:
        """The first one's."""
        return self.lead.source_language

    @property
    def target_language(self) -> str | None:
        """The first one's."""
        return self.lead.target_language

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
        followers = [Follower(model, sources) for model in self.followers]

        def mean_step(step: Step) -> Tensor:
            device = step.log_probs.device
            others = [follower.log_probs(step).to(device) for follower in followers]
            together = replace(step, log_probs=_log_mean([step.log_probs, *others]))
            return together.log_probs if step_hook is None else step_hook(together)

        return self.lead.generate(sources, decoding, mean_step)


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
        self.rows: dict[bytes, int] = {}  # the cache's row of each sentence and prefix

    @torch.no_grad()
    def log_probs(self, step: Step) -> Tensor:
        """log p_MT of this model after each row's prefix, (rows, vocabulary) float32."""
        sentences, prefixes = step.sentences.to(self.model.device), step.prefixes.to(self.model.device)
        history = torch.cat([sentences.unsqueeze(1), prefixes], dim=1).cpu().numpy()
        if self.cache is not None:
            # Beams were cut and copied: each row continues the row that had its prefix but for the last token.
            parents = [self.rows[row[:-1].tobytes()] for row in history]
            self.cache.reorder_cache(torch.tensor(parents, device=self.model.device))
        logits, self.cache = self.model.next_logits(self.inputs, sentences, prefixes, self.cache)
        self.rows = {row.tobytes(): number for number, row in enumerate(history)}
        return torch.log_softmax(logits.float(), dim=-1)

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from knn_seq.registry import Registry
from knn_seq.settings import DecodingSettings, ModelSettings


class Source(NamedTuple):
    """A sentence to translate, as a person and as the model reads it."""

    text: str
    tokens: Sequence[int]


class TokenPair(NamedTuple):
    """A sentence pair as the model sees it."""

    source: Sequence[int]  # what the encoder reads, or the prompt of a decoder-only model
    target: Sequence[int]  # what is to be predicted, the end-of-sentence token last


class Scored(NamedTuple):
    """What a model thinks of given target tokens, a row a token."""

    keys: Tensor  # (tokens, dimension)
    log_probs: Tensor  # (tokens,): log p_MT of each token, float32
    choices: Tensor  # (tokens,): the token that the model itself holds most likely there
    choice_log_probs: Tensor  # (tokens,): log p_MT of these

    @classmethod
    def of(cls, keys: Tensor, log_probs: Tensor, targets: Tensor) -> Scored:
        """From the whole distributions, (tokens, vocabulary), and the target tokens, (tokens,)."""
        best = log_probs.max(dim=1)
        return cls(keys, log_probs.gather(1, targets.unsqueeze(1)).squeeze(1), best.indices, best.values)


@dataclass(frozen=True)
class Step:
    """One step of decoding, a row for each beam of each sentence."""

    queries: Tensor  # (rows, dimension): the hidden states, in the model's dtype
    log_probs: Tensor  # (rows, vocabulary): log p_MT, float32
    prefixes: Tensor  # (rows, t): the tokens generated so far
    sentences: Tensor  # (rows,): each row's sentence in the batch, on the CPU: no device has to be asked for it
    finished: Tensor | None = None  # (rows,) bool: rows that are complete, whose log_probs nobody reads


Steer = Callable[[Step], Tensor]
"""Turns a step into the log-probabilities to decode with, (rows, vocabulary); it may write into the step's own."""


@dataclass(frozen=True)
class Fingerprint:
    """Tells whether keys and values made with one model fit another."""

    weights: str
    vocabulary: str


class PairTokenizer(ABC):
    """Text to tokens and back.  It travels to other processes, so it must be picklable."""

    @abstractmethod
    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """What the encoder reads (or the prompt) for each text."""

    @abstractmethod
    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """What the decoder is to predict for each text, the end-of-sentence token last."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """The text of predicted tokens."""

    @abstractmethod
    def token(self, token: int) -> str:
        """A token as a person reads it."""


class Model(ABC):
    """A translation model: a tokenizer, keys for sentence pairs, and a search that can be steered."""

    settings: ModelSettings
    tokenizer: PairTokenizer
    fingerprint: Fingerprint
    architecture: str
    dimension: int  # of a key
    max_length: int | None  # tokens of a source, and of a target, that the model has positions for; None: any number

    @abstractmethod
    def keys(self, pairs: Sequence[TokenPair]) -> Tensor:
        """The key of every target token under teacher forcing, pair after pair, (tokens, dimension)."""

    @abstractmethod
    def score(self, pairs: Sequence[TokenPair]) -> Scored:
        """The key and the probability of every target token under teacher forcing, pair after pair."""

    @abstractmethod
    def sentence_vectors(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """The mean of what the model makes of each source's tokens before it translates, (sources, width) float32."""

    @abstractmethod
    def generate(
        self, sources: Sequence[Sequence[int]], decoding: DecodingSettings, steer: Steer | None = None
    ) -> list[list[list[int]]]:
        """Translate a batch with the model's own search.

        Returns:
            For each source the tokens of its n best outputs, best first: without what was forced before the first
            step, and with the end-of-sentence token last unless the output was cut.
        """


class ModelBackend(ABC):
    """Knows how to load one kind of models, those whose names begin with its own and a colon."""

    @classmethod
    @abstractmethod
    def load(cls, name: str, settings: ModelSettings) -> Model:
        """The model of that name; the backend's own name and the colon are cut off."""


MODELS: Registry[ModelBackend] = Registry("models")

_PREFIX = re.compile(r"([a-z][a-z0-9_]+):(?!\\)(.*)")


def load_model(settings: ModelSettings) -> Model:
    """The model of the settings: BACKEND:NAME, or a name or path for Transformers' own `from_pretrained`."""
    backend, name = _split(settings.name)
    return MODELS.get(backend or "transformers").load(name, settings)


def absolute_name(name: str) -> str:
    """The name of a model that means the same from any folder."""
    backend, rest = _split(name)
    rest = os.path.abspath(rest) if os.path.exists(rest) else rest
    return f"{backend}:{rest}" if backend else rest


def _split(name: str) -> tuple[str | None, str]:
    match = _PREFIX.fullmatch(name)
    return (match[1], match[2]) if match else (None, name)

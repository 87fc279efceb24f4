from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.registry import Registry
from knn_seq.runtime.memory import MemoryNeed, require_memory
from knn_seq.settings import DecodingSettings, ModelSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig


class Source(NamedTuple):
    """A sentence to translate, as a person and as the model reads it."""

    text: str
    tokens: Sequence[int]


class TokenPair(NamedTuple):
    """A sentence pair as the model sees it."""

    source: Sequence[int]  # what the encoder reads, or the prompt of a decoder-only model
    target: Sequence[int]  # what is to be predicted, the end-of-sentence token last


class Scored(NamedTuple):
    """A model's states and distributions before each target token under teacher forcing, a row a token."""

    keys: Tensor  # (tokens, dimension)
    log_probs: Tensor  # (tokens, vocabulary): log p_MT, float32


LeftOut = Callable[[Tensor, Tensor], Tensor]
"""log p_MT of tokens that are not in the shortlist, relative to those that are: rows and tokens, (n,) each, to (n,)."""


@dataclass(frozen=True)
class Step:
    """One step of decoding, a row for each beam of each sentence."""

    queries: Tensor  # (rows, dimension): the hidden states, in the model's dtype
    log_probs: Tensor  # (rows, vocabulary): log p_MT, float32
    prefixes: Tensor  # (rows, t): the tokens generated so far; -1 behind them in rows that have fewer than others
    sentences: Tensor  # (rows,): the number of each row's sentence, on the CPU: no device has to be asked for it
    finished: Tensor | None = None  # (rows,) bool: rows that are complete, whose log_probs nobody reads
    largest: Callable[[int], Tensor] | None = None  # a faster way to `best_log_probs`
    attention: Tensor | None = None  # (rows, source tokens): where the model looks, if it can tell and is asked
    left_out: LeftOut | None = None  # for a model with a shortlist; None: all log_probs are known

    def best_log_probs(self, count: int) -> Tensor:
        """The largest of each row's log_probs, largest first, (rows, count)."""
        if self.largest is not None:
            return self.largest(count)
        return largest_log_probs(self.log_probs, count)

    def complete(self, tokens: Tensor) -> None:
        """Let log_probs have these tokens, (rows, n), also where a shortlist has left them out with minus infinity."""
        if self.left_out is None:
            return
        rows, places = (self.log_probs.gather(1, tokens) == -torch.inf).nonzero(as_tuple=True)
        if len(rows):
            missing = tokens[rows, places]
            self.log_probs[rows, missing] = self.left_out(rows, missing)


def largest_log_probs(log_probs: Tensor, count: int) -> Tensor:
    """The largest of each row, (rows, vocabulary), largest first, (rows, count)."""
    if count == 1:  # several times faster than to look for more
        return log_probs.amax(dim=1, keepdim=True)
    return log_probs.topk(count, dim=1).values if count else log_probs[:, :0]


class StepChanges(NamedTuple):
    """What becomes of a step's log-probabilities: all of a row shift alike, but for some tokens."""

    shift: Tensor  # (rows, 1)
    tokens: Tensor  # (rows, n): may be there twice, with the same log_probs
    log_probs: Tensor  # (rows, n): what these tokens have, which do not shift


StepHook = Callable[[Step], Tensor]
"""Makes of a step the log-probabilities to decode with, (rows, vocabulary); it may write into the step's own.

One that has the attribute `wants_attention`, and it is true, is told where the model looks.
"""


def wants_attention(step_hook: StepHook | None) -> bool:
    """Whether a hook is to be told where the model looks."""
    return bool(getattr(step_hook, "wants_attention", False))


class StreamHook(ABC):
    """A step hook that is told which sentences enter a batch and leave it, and that changes few tokens of a step."""

    @abstractmethod
    def enter(self, sentences: Sequence[int]) -> None:
        """Get ready for the sentences with these numbers, which are in the next step for the first time."""

    @abstractmethod
    def leave(self, sentences: Sequence[int]) -> None:
        """Let go of what is kept for sentences that are done."""

    @abstractmethod
    def changes(self, step: Step) -> StepChanges:
        """What becomes of a step."""

    @abstractmethod
    def __call__(self, step: Step) -> Tensor:
        """The same as a `StepHook`: log-probabilities, (rows, vocabulary)."""


class Hypothesis(NamedTuple):
    """An output of a search."""

    tokens: list[int]  # without what was forced before the first step; the end-of-sentence token last, unless cut
    score: float  # the sum of log p of the tokens, in the distribution that was decoded from


@dataclass(frozen=True)
class Fingerprint:
    """Tells whether keys and values made with one model fit another."""

    weights: str
    vocabulary: str


class UnknownToken(NamedTuple):
    """The token of each side that stands for what the vocabulary lacks; None where there is none."""

    source: int | None = None
    target: int | None = None


Shots = Sequence[tuple[str, str]]
"""Sentence pairs that a model sees as examples in its prompt, the most similar one last."""


class PairTokenizer(ABC):
    """Text to tokens and back.  It travels to other processes, so it must be picklable."""

    unknown = UnknownToken()
    prompt: str | None = None  # what a source is written into, with {source} in its place; None: nothing
    end: int | None = None  # a further token that ends an output, if the tokenizer knows one

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

    def encode_with_shots(self, texts: Sequence[str], shots: Sequence[Shots], longest: int | None) -> list[list[int]]:
        """The prompt for each text with examples before it.

        Args:
            texts: The sentences.
            shots: The examples for each of them.
            longest: Tokens of a prompt: of examples that do not fit, the least similar ones are left out.
        """
        raise InvalidSetting("Examples in the prompt (--shots) are for decoder-only models, such as Llama.")

    @property
    def text_start(self) -> list[int]:
        """What a model that continues text reads before the text."""
        return []

    def encode_text(self, text: str) -> list[int]:
        """The tokens of a text that a model continues, and of nothing else."""
        raise InvalidSetting("Plain text (--text) is for decoder-only models, such as GPT-2 or Llama.")

    def plain_text(self, tokens: Sequence[int]) -> str:
        """The text of tokens as it is, spaces at both ends included."""
        return self.decode(tokens)

    def why_unknown(self, side: str) -> str:
        """Why much of a text may be unknown and what to do, for a message about the "source" or "target" side."""
        return "the text is not what the model was trained to read: check its language, its script and its tokenization"


class Model(ABC):
    """A translation model: a tokenizer, keys for sentence pairs, and a search whose steps can be hooked."""

    settings: ModelSettings
    tokenizer: PairTokenizer
    fingerprint: Fingerprint
    architecture: str
    dimension: int  # of a key
    max_length: int | None  # tokens of a source, and of a target, that the model has positions for; None: any number

    window: int | None = None  # tokens that a decoder-only model reads and writes together; None: any number

    def fits(self, source: int, target: int) -> bool:
        """Whether the model can read a source and write a target of these lengths."""
        return self.max_length is None or max(source, target) <= self.max_length

    @property
    def source_language(self) -> str | None:
        """What it translates from, if it knows: "pt", "pt_BR"."""
        return self.settings.source_lang

    @property
    def target_language(self) -> str | None:
        """What it translates to, if it knows."""
        return self.settings.target_lang

    @abstractmethod
    def keys(self, pairs: Sequence[TokenPair]) -> Tensor:
        """The key of every target token under teacher forcing, pair after pair, (tokens, dimension)."""

    @abstractmethod
    def score(self, pairs: Sequence[TokenPair]) -> Scored:
        """Keys and distributions at every target token under teacher forcing, pair after pair."""

    def attention(self, pairs: Sequence[TokenPair]) -> list[Tensor] | None:
        """Where the model looks under teacher forcing; None: it cannot tell.

        Returns:
            For each pair how much it looks at each source token when it predicts each target token, (target tokens,
            source tokens) float32.
        """
        return None

    @abstractmethod
    def sentence_vectors(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """The mean of what the model makes of each source's tokens before it translates, (sources, width) float32."""

    @abstractmethod
    def generate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None = None,
    ) -> list[list[Hypothesis]]:
        """Translate a batch with the model's own search.

        Args:
            sources: What the encoder reads, or the prompts.
            decoding: How is searched.
            step_hook: Called at every step, to change what is decoded from.

        Returns:
            The n best outputs of each source, best first.
        """

    def generate_stream(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None = None,
        batch_size: int = DecodingSettings.batch_size,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Translate any number of sources, some at a time; each comes with its number as soon as it is done.

        Args:
            sources: As for `generate`; little is computed in vain if those of one length stand together.
            decoding: How is searched.
            step_hook: As for `generate`; a sentence's number is that of its source.
            batch_size: How many are under way at a time.
        """
        return in_batches(partial(self.generate, decoding=decoding), sources, step_hook, batch_size)


def in_batches(
    generate: Callable[..., list[list[Hypothesis]]],
    sources: Sequence[Sequence[int]],
    step_hook: StepHook | None,
    batch_size: int,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """What `Model.generate_stream` gives, batch after batch.

    Args:
        generate: Translates a batch with a `step_hook`, in whose steps sentences are 0, 1, 2 ...
        sources: All sources.
        step_hook: For all of them.
        batch_size: Sources of a batch.
    """
    for start in range(0, len(sources), batch_size):
        numbers = range(start, min(start + batch_size, len(sources)))
        if isinstance(step_hook, StreamHook):
            step_hook.enter(numbers)
        hook = None if step_hook is None else partial(_numbered, step_hook, start)
        found = generate([sources[number] for number in numbers], step_hook=hook)
        if isinstance(step_hook, StreamHook):
            step_hook.leave(numbers)
        yield from zip(numbers, found, strict=True)


def _numbered(step_hook: StepHook, start: int, step: Step) -> Tensor:
    return step_hook(replace(step, sentences=step.sentences + start))


class ModelBackend(ABC):
    """Knows how to load one kind of models, those whose names begin with its own and a colon."""

    @classmethod
    def installed(cls) -> list[str]:
        """The names of models that are there already, for messages."""
        return []

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Whether a model in a folder that is given without a backend's name is one of these."""
        return False

    @classmethod
    def weight_bytes(cls, name: str, settings: ModelSettings) -> int:
        """What the model's weights take in memory at the least, as far as that can be told before they are loaded."""
        return os.path.getsize(name) if os.path.isfile(name) else 0

    @classmethod
    @abstractmethod
    def load(cls, name: str, settings: ModelSettings) -> Model:
        """The model of that name; the backend's own name and the colon are cut off."""


MODELS: Registry[ModelBackend] = Registry(ModelBackend, "models", "model backend")  # type: ignore[type-abstract]

_PREFIX = re.compile(r"([a-z][a-z0-9_]+):(?!\\)(.*)")
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


def load_model(settings: ModelSettings) -> Model:
    """The model of the settings: BACKEND:NAME, or a name or path for Transformers' own `from_pretrained`."""
    backend, name = _split(settings.name)
    if backend is None:
        _require_possible_name(name)
        backend = _backend_of(Path(name))
    kind = MODELS.get(backend)
    require_memory(MemoryNeed(kind.weight_bytes(name, settings)), f"The model {settings.name}")
    return kind.load(name, settings)


def as_model(model: Any, settings: ModelSettings, tokenizer: Any = None) -> Model:
    """The model that a user gave: a name, a loaded network of Transformers with its tokenizer, or a `Model`.

    Args:
        model: The model.
        settings: Everything but the name.
        tokenizer: Of a loaded network, which stays in its dtype and, unless one is given, on its device.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, str | os.PathLike):
        return load_model(replace(settings, name=os.fspath(model)))
    from knn_seq.models.transformers import adopt_network

    return adopt_network(model, tokenizer, settings)


def absolute_name(name: str) -> str:
    """The name of a model that means the same from any folder."""
    backend, rest = _split(name)
    rest = os.path.abspath(rest) if os.path.exists(rest) else rest
    return f"{backend}:{rest}" if backend else rest


def _backend_of(path: Path) -> str:
    """The backend whose model a folder holds, or that of hub names."""
    kinds = MODELS.names() if path.is_dir() else ()
    return next((name for name in kinds if MODELS.get(name).recognises(path)), "transformers")


def _require_possible_name(name: str) -> None:
    """Raise an `InvalidSetting` if a name is neither a folder nor what a model on a hub can be called."""
    if os.path.exists(name):
        return
    if not _HUB_NAME.fullmatch(name):
        raise InvalidSetting(f"There is no folder '{name}', and a model on a hub cannot be called so: check --model.")
    if "/" not in name and name in MODELS.names():
        models = ", ".join(MODELS.get(name).installed())
        choice = f": choose from {models}, or give a path to a model folder" if models else ""
        raise InvalidSetting(f"'{name}' is a kind of models, not a model: write {name}:NAME{choice}.")


def _split(name: str) -> tuple[str | None, str]:
    match = _PREFIX.fullmatch(name)
    return (match[1], match[2]) if match else (None, name)

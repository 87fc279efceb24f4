"""What all models have in common that are Transformers networks with generate()."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from knn_seq.errors import KnnSeqError
from knn_seq.models.base import Fingerprint, Hypothesis, Model, PairTokenizer, Scored, StepHook, TokenPair
from knn_seq.models.batching import spans
from knn_seq.models.decoding_hook import decoding_hook, log_softmax
from knn_seq.models.fingerprint import weights_fingerprint
from knn_seq.models.key_hook import KeyFound, KeyHook
from knn_seq.settings import DecodingSettings, ModelSettings

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class NetworkModel(Model):
    """A Transformers network and its tokenizer.

    Args:
        network: The network, in the dtype of its checkpoint: its fingerprint must not depend on the dtype it runs in.
        tokenizer: Text to tokens and back.
        vocabulary: The vocabulary's fingerprint.
        settings: The key, the device and the dtype to run in.
    """

    def __init__(self, network: Any, tokenizer: PairTokenizer, vocabulary: str, settings: ModelSettings) -> None:
        if settings.dtype not in DTYPES:
            raise KnnSeqError(f"There is no dtype '{settings.dtype}': choose from {', '.join(DTYPES)}.")
        self.settings = settings
        self.tokenizer = tokenizer
        self.fingerprint = Fingerprint(weights_fingerprint(network), vocabulary)
        self.architecture = type(network).__name__
        self.device = _device(settings.device)
        self.network = network.to(self.device, DTYPES[settings.dtype]).eval()
        time_major = network.config.model_type == "fsmt"
        self.key_hook = KeyHook(network, network.get_decoder(), settings.key, time_major)
        end = network.generation_config.eos_token_id
        self.end_tokens: set[int] = {end} if isinstance(end, int) else set(end or ())
        self.max_length = self._positions()
        self.dimension = self.keys([TokenPair([self._any_token()], [self._any_token()])]).shape[1]

    @abstractmethod
    def _teacher_forcing(self, pairs: Sequence[TokenPair]) -> tuple[dict[str, Tensor], list[int]]:
        """The inputs of the network's forward pass, and for each pair the position that predicts its first target."""

    @abstractmethod
    def _decoding_inputs(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The arguments of generate() that tell it what to translate."""

    @abstractmethod
    def _positions(self) -> int | None:
        """See `Model.max_length`."""

    @abstractmethod
    def decoding_state(self, sources: Sequence[Sequence[int]]) -> Any:
        """What `next_logits` needs to know of a batch."""

    @abstractmethod
    def next_logits(self, state: Any, sentences: Tensor, prefixes: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """One step outside generate().

        Args:
            state: What `decoding_state` gave for the batch.
            sentences: Each row's sentence in the batch, (rows,).
            prefixes: The tokens generated so far, (rows, t).
            cache: What the last step gave, its rows in the order of these; None at the first step.

        Returns:
            The logits after each prefix, (rows, vocabulary), and the cache for the next step.
        """

    @torch.no_grad()
    def keys(self, pairs: Sequence[TokenPair]) -> Tensor:
        """See `Model.keys`.  The forward pass ends at the key: no output projection is computed."""
        inputs, starts = self._teacher_forcing(pairs)
        with self.key_hook.attached(stop=True):
            with suppress(KeyFound):
                self.network(**inputs, use_cache=False)
            return self.key_hook.states(len(pairs))[self._target_places(pairs, starts)]

    @torch.no_grad()
    def score(self, pairs: Sequence[TokenPair]) -> Scored:
        """See `Model.score`."""
        inputs, starts = self._teacher_forcing(pairs)
        places = self._target_places(pairs, starts)
        with self.key_hook.attached():
            logits = self.network(**inputs, use_cache=False).logits[places]
            keys = self.key_hook.states(len(pairs))[places]
        return Scored(keys, log_softmax(logits.float()))

    def generate(
        self, sources: Sequence[Sequence[int]], decoding: DecodingSettings, step_hook: StepHook | None = None
    ) -> list[list[Hypothesis]]:
        """See `Model.generate`."""
        inputs = self._decoding_inputs(sources)
        if step_hook is None:
            output = self.network.generate(**inputs, **self._search_arguments(decoding))
        else:
            # Beams that end are replaced by others; without beams, finished rows stay.
            ends = self.end_tokens if decoding.sample or decoding.beam_size == 1 else ()
            with decoding_hook(self.network, self.key_hook, step_hook, len(sources), ends):
                output = self.network.generate(**inputs, **self._search_arguments(decoding))
        outputs = [
            Hypothesis(self._until_end(tokens), math.nan)
            for tokens in output[:, self._forced_length(inputs) :].tolist()
        ]
        return [outputs[i : i + decoding.nbest] for i in range(0, len(outputs), decoding.nbest)]

    def _search_arguments(self, decoding: DecodingSettings) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "num_return_sequences": decoding.nbest,
            "max_new_tokens": min(decoding.max_length, self.max_length or decoding.max_length),
            "max_length": None,
            "num_beams": 1 if decoding.sample else decoding.beam_size,
            "do_sample": decoding.sample,
        }
        if decoding.sample:
            if decoding.seed is not None:
                torch.manual_seed(decoding.seed)
            arguments |= {
                "temperature": decoding.sampling_temperature,
                "top_k": decoding.top_k,
                "top_p": decoding.top_p,
            }
        elif decoding.beam_size > 1:
            arguments |= {"length_penalty": decoding.length_penalty, "early_stopping": False}
        return arguments

    def _target_places(self, pairs: Sequence[TokenPair], starts: list[int]) -> tuple[Tensor, Tensor]:
        return spans(starts, [len(pair.target) for pair in pairs], self.device)

    def _until_end(self, tokens: list[int]) -> list[int]:
        for place, token in enumerate(tokens):
            if token in self.end_tokens:
                return tokens[: place + 1]
        return tokens

    @abstractmethod
    def _forced_length(self, inputs: dict[str, Any]) -> int:
        """How many tokens of an output were there before the first step."""

    def _any_token(self) -> int:
        return next(iter(self.end_tokens), 0)


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise KnnSeqError(f"The device '{name}' cannot be used here; the CPU is called 'cpu'.") from error
    return device

"""What all models have in common that are networks with generate()."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.models.attention_hook import AttentionHook
from knn_seq.models.base import Fingerprint, Hypothesis, Model, PairTokenizer, Scored, StepHook, TokenPair
from knn_seq.models.batching import spans
from knn_seq.models.decoding_hook import decoding_hook
from knn_seq.models.fingerprint import weights_fingerprint
from knn_seq.models.key_hook import KeyFound, KeyHook
from knn_seq.models.log_probs import log_softmax
from knn_seq.models.search_arguments import search_arguments
from knn_seq.models.token_scores import TokenScores
from knn_seq.settings import DecodingSettings, ModelSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig

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
            raise InvalidSetting(f"There is no dtype '{settings.dtype}': choose from {', '.join(DTYPES)}.")
        self.settings = settings
        self.tokenizer = tokenizer
        self.fingerprint = Fingerprint(weights_fingerprint(network), vocabulary)
        self.architecture = type(network).__name__
        self.device = _device(settings.device)
        self.network = network.to(self.device, DTYPES[settings.dtype]).eval()
        time_major = network.config.model_type == "fsmt"
        self.key_hook = KeyHook(network, network.get_decoder(), settings.key, time_major)
        self.attention_hook = AttentionHook.of(network, network.get_decoder(), time_major)
        self.end_tokens = _as_set(network.generation_config.eos_token_id)
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
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None = None,
    ) -> list[list[Hypothesis]]:
        """See `Model.generate`."""
        inputs = self._decoding_inputs(sources)
        arguments = self._search_arguments(decoding, self._forced_length(inputs))
        hypotheses = self._search(inputs, arguments, step_hook, len(sources))
        nbest = len(hypotheses) // len(sources)
        return [hypotheses[i : i + nbest] for i in range(0, len(hypotheses), nbest)]

    def _search_arguments(self, decoding: DecodingSettings | GenerationConfig, forced: int) -> dict[str, Any]:
        """The arguments of generate() that say how to search."""
        return search_arguments(decoding, self.max_length, forced)

    def _search(
        self, inputs: dict[str, Any], arguments: dict[str, Any], step_hook: StepHook | None, sentences: int
    ) -> list[Hypothesis]:
        """The outputs of all sentences, one after the other."""
        own = self.network.generation_config
        beams = arguments.get("num_beams") or own.num_beams or 1
        ends = _as_set(arguments.get("eos_token_id")) or self.end_tokens
        token_scores = TokenScores(beams, ends, self.device)
        hook = decoding_hook(
            self.network,
            self.key_hook,
            step_hook,
            sentences,
            # Beams that end are replaced by others; without beams, finished rows stay.
            ends=ends if beams == 1 else (),
            search_normalises=beams > 1,
            token_scores=token_scores,
            attention_hook=self.attention_hook,
        )
        with hook:
            found = self.network.generate(**{**arguments, **inputs, "return_dict_in_generate": beams > 1})
        tokens, rows = (found, None) if beams == 1 else (found.sequences, found.beam_indices)
        tokens = tokens[:, self._forced_length(inputs) :]
        if rows is None:
            rows = torch.arange(len(tokens), device=tokens.device).unsqueeze(1).expand_as(tokens)
        outputs = [until_end(output, ends) for output in tokens.tolist()]
        scores = token_scores.totals(tokens, [len(output) for output in outputs], rows)
        return [Hypothesis(*output) for output in zip(outputs, scores, strict=True)]

    def _target_places(self, pairs: Sequence[TokenPair], starts: list[int]) -> tuple[Tensor, Tensor]:
        return spans(starts, [len(pair.target) for pair in pairs], self.device)

    @abstractmethod
    def _forced_length(self, inputs: dict[str, Any]) -> int:
        """How many tokens of an output were there before the first step."""

    def _any_token(self) -> int:
        return next(iter(self.end_tokens), 0)


def until_end(tokens: list[int], ends: Collection[int]) -> list[int]:
    """The tokens to the first that ends an output, or all of them."""
    for place, token in enumerate(tokens):
        if token in ends:
            return tokens[: place + 1]
    return tokens


def _as_set(tokens: int | Iterable[int] | None) -> set[int]:
    return {tokens} if isinstance(tokens, int) else set(tokens or ())


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidSetting(f"The device '{name}' cannot be used here; the CPU is called 'cpu'.") from error
    return device

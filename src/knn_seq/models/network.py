"""What all models have in common that are networks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.models.attention_hook import AttentionHook
from knn_seq.models.base import Fingerprint, Hypothesis, Model, PairTokenizer, Scored, TokenPair, in_batches
from knn_seq.models.batching import spans
from knn_seq.models.decoding_hook import decoding_hook
from knn_seq.models.fingerprint import weights_fingerprint
from knn_seq.models.int8 import quantize_linears
from knn_seq.models.key_hook import KeyFound, KeyHook
from knn_seq.models.log_probs import log_softmax
from knn_seq.models.search import RowDecoder, SearchLoop, SearchPlan, search_plan
from knn_seq.models.search.loop import OpenDecoder
from knn_seq.models.search.network_decoder import NetworkDecoder
from knn_seq.models.search.step_by_step import until_end
from knn_seq.models.search_arguments import search_arguments
from knn_seq.models.step import StepHook, wants_attention
from knn_seq.models.token_scores import TokenScores
from knn_seq.settings import DecodingSettings, ModelSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig

# What everything but the linear layers computes in.
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.float32,
}


class NetworkModel(Model):
    """A Transformers network and its tokenizer.

    Args:
        network: The network, in the dtype of its checkpoint: its fingerprint must not depend on the dtype it runs in.
        tokenizer: Text to tokens and back.
        vocabulary: The vocabulary's fingerprint.
        settings: The key, the device and the dtype to run in.
    """

    def __init__(self, network: Any, tokenizer: PairTokenizer, vocabulary: str, settings: ModelSettings) -> None:
        self.device = _device(settings.device)
        dtype = settings.dtype or self.default_dtype(self.device)
        if dtype not in DTYPES:
            raise InvalidSetting(f"There is no dtype '{dtype}': choose from {', '.join(DTYPES)}.")
        if dtype == "int8" and self.device.type != "cpu":
            raise InvalidSetting(f"The dtype int8 is for CPUs: on {self.device} use float16 or bfloat16.")
        self.settings = replace(settings, dtype=dtype)
        self.tokenizer = tokenizer
        self.fingerprint = Fingerprint(weights_fingerprint(network), vocabulary)
        self.architecture = type(network).__name__
        self.network = network.to(self.device, DTYPES[dtype]).eval()
        if dtype == "int8":
            quantize_linears(network)
        time_major = network.config.model_type == "fsmt"
        self.key_hook = KeyHook(network, network.get_decoder(), settings.key, time_major)
        self.attention_hook = AttentionHook.of(network, network.get_decoder(), time_major)
        self.end_tokens = _as_set(network.generation_config.eos_token_id)
        self.max_length = self._positions()
        self.dimension = self.keys([TokenPair([self._any_token()], [self._any_token()])]).shape[1]

    @classmethod
    def default_dtype(cls, device: torch.device) -> str:
        """What it computes in if nothing is said."""
        return "float32"

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
    def forced_tokens(self, source: Sequence[int]) -> Sequence[int]:
        """What is there before the first step of a sentence."""

    @abstractmethod
    def decoding_state(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
        """What `next_logits` needs to know of a batch, a row a source."""

    @abstractmethod
    def next_logits(self, state: tuple[Tensor, ...], tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """One step outside generate().

        Args:
            state: What `decoding_state` gave, with the rows of these.
            tokens: The tokens that were generated since the last step, (rows, n).
            cache: What the last step gave, its rows in the order of these; None at the first step.

        Returns:
            The logits after the last token, (rows, vocabulary), and the cache for the next step.
        """

    def row_decoder(self, rows_each: int, attends: bool = False) -> RowDecoder:
        """What computes the steps of a search.

        Args:
            rows_each: Rows of each sentence.
            attends: It is to tell where the model looks, if it can.
        """
        return NetworkDecoder(self, rows_each, attends)

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

    @torch.no_grad()
    def attention(self, pairs: Sequence[TokenPair]) -> list[Tensor] | None:
        """See `Model.attention`."""
        if self.attention_hook is None:
            return None
        inputs, starts = self._teacher_forcing(pairs)
        stop = self.settings.key in ("ffn_in", "ffn_out")  # behind the last cross-attention: nothing else is needed
        with self.attention_hook.attached():
            with self.key_hook.attached(stop), suppress(KeyFound):
                self.network(**inputs, use_cache=False)
            weights = self.attention_hook.all_weights()
        return [
            looks[start : start + len(pair.target), : len(pair.source)]
            for looks, start, pair in zip(weights, starts, pairs, strict=True)
        ]

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None = None,
    ) -> list[list[Hypothesis]]:
        """See `Model.generate`."""
        found = dict(self.generate_stream(sources, decoding, step_hook, max(len(sources), 1)))
        return [found[number] for number in range(len(sources))]

    def generate_stream(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None = None,
        batch_size: int = DecodingSettings.batch_size,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """See `Model.generate_stream`.  What our own search does not know is left to generate()."""
        plans = self.search_plans(sources, decoding)
        if plans is not None:
            open_decoder = partial(self.row_decoder, attends=wants_attention(step_hook))
            yield from search_all(self, open_decoder, sources, plans, step_hook, batch_size, token_budget(decoding))
        else:
            yield from in_batches(partial(self._generate, decoding=decoding), sources, step_hook, batch_size)

    def search_plans(
        self, sources: Sequence[Sequence[int]], decoding: DecodingSettings | GenerationConfig
    ) -> list[SearchPlan] | None:
        """How our own search looks for the outputs of each source; None: it does not know how."""
        if hasattr(self.network, "_reorder_cache") or getattr(self.network, "_is_stateful", False):
            return None  # what it remembers between two steps is no cache that rows can be taken out of
        plans: dict[int, SearchPlan | None] = {}
        for source in sources:
            forced = len(self.forced_tokens(source))
            if forced not in plans:
                arguments = {**vars(self.network.generation_config), **self._search_arguments(decoding, forced)}
                plans[forced] = self._plan(arguments, _seed(decoding))
        known = [plans[len(self.forced_tokens(source))] for source in sources]
        return None if None in known else known  # type: ignore[return-value]

    def _plan(self, arguments: dict[str, Any], seed: int | None) -> SearchPlan | None:
        """The plan that says what arguments of generate() say, the model's own among them."""
        return search_plan(arguments, seed)

    def _generate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None,
    ) -> list[list[Hypothesis]]:
        """With generate() of the network."""
        inputs = self._decoding_inputs(sources)
        arguments = self._search_arguments(decoding, self._forced_length(inputs))
        if (seed := _seed(decoding)) is not None:
            torch.manual_seed(seed)
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


def search_all(
    model: NetworkModel,
    open_decoder: OpenDecoder,
    sources: Sequence[Sequence[int]],
    plans: Sequence[SearchPlan],
    step_hook: StepHook | None,
    batch_size: int,
    tokens: float = math.inf,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Search for the outputs of all sources.

    Args:
        model: Whose tokens they are.
        open_decoder: Computes the steps.
        sources: What the encoder reads, or the prompts.
        plans: How each is searched.
        step_hook: Called at every step.
        batch_size: How many are under way at a time.
        tokens: The budget of these, as `SearchLoop` counts them.
    """
    loop = SearchLoop(open_decoder, batch_size * max((plan.rows for plan in plans), default=1), tokens)
    numbers = {}
    for number, (source, plan) in enumerate(zip(sources, plans, strict=True)):
        numbers[loop.add(source, model.forced_tokens(source), plan, step_hook, number)] = number
    for found in loop.run():
        yield numbers[found.ticket], found.hypotheses


def token_budget(decoding: DecodingSettings | GenerationConfig) -> float:
    """Tokens that may be under way at a time."""
    return getattr(decoding, "batch_tokens", None) or math.inf


def _seed(decoding: DecodingSettings | GenerationConfig) -> int | None:
    return decoding.seed if isinstance(decoding, DecodingSettings) and decoding.sample else None


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

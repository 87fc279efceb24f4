"""Firefox Translations ("Bergamot") models: small Marian networks that run well on any CPU."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting, NotFound
from knn_seq.models.base import (
    MODELS,
    Hypothesis,
    Model,
    ModelBackend,
    PairTokenizer,
    Scored,
    Step,
    StepHook,
    TokenPair,
    UnknownToken,
)
from knn_seq.models.batching import pad
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.firefox_network import (
    EncoderOutput,
    FirefoxNetwork,
    FirefoxTokenizer,
    find_model_folder,
    installed_pairs,
    load_firefox,
)
from knn_seq.models.firefox_network.decoder import FirefoxDecoder
from knn_seq.models.firefox_network.search import beam_search, greedy, sampler, step_by_step
from knn_seq.models.firefox_network.shortlist_file import find_shortlist, read_shortlist
from knn_seq.models.int8 import fast_int8
from knn_seq.models.log_probs import LogProbs
from knn_seq.models.network import until_end
from knn_seq.models.shortlist import Shortlist
from knn_seq.settings import DecodingSettings, ModelSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig

# The fields of a GenerationConfig that the search has, and what others may be because it changes nothing.
SEARCH_FIELDS = (
    "num_beams",
    "num_return_sequences",
    "length_penalty",
    "max_new_tokens",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
)
NEUTRAL = {
    "min_length": 0,
    "min_new_tokens": 0,
    "early_stopping": False,
    "use_cache": True,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "guidance_scale": 1.0,
    "remove_invalid_values": False,
    "return_dict_in_generate": False,
    "renormalize_logits": False,
}
FLOAT_BYTES = 4  # of a weight, in what the network computes
SAMPLED_TOKENS = 50  # what Transformers takes where no top_k is given


@MODELS.register("firefox")
class FirefoxBackend(ModelBackend):
    """`firefox:pt-en` for a language pair that is installed, `firefox:PATH` for a folder."""

    @classmethod
    def installed(cls) -> list[str]:
        """Language pairs."""
        return installed_pairs()

    @classmethod
    def weight_bytes(cls, name: str, settings: ModelSettings) -> int:
        """Four bytes for each of the file's, which are numbers of 8 bits nearly all of them."""
        folder = find_model_folder(name)
        return sum(FLOAT_BYTES * path.stat().st_size for path in folder.glob("model*.intgemm*.bin"))

    @classmethod
    def load(cls, name: str, settings: ModelSettings) -> Model:
        """Read the folder's network and vocabulary."""
        folder = find_model_folder(name)
        network, tokenizer = load_firefox(folder)
        shortlist = _shortlist(folder, network.config.vocab_size, settings)
        vocabulary = tokenizer.vocabulary_hash()
        return FirefoxModel(network, FirefoxSides(tokenizer), vocabulary, settings, shortlist)


class FirefoxModel(EncoderDecoderModel):
    """A network that is loaded, and searches, without Transformers: that alone would take seconds to import.

    Args:
        network: The network.
        tokenizer: Text to tokens and back.
        vocabulary: The vocabulary's fingerprint.
        settings: The key, the device and the dtype to run in.
        shortlist: The tokens that a source can become; None: all.
    """

    def __init__(
        self,
        network: FirefoxNetwork,
        tokenizer: PairTokenizer,
        vocabulary: str,
        settings: ModelSettings,
        shortlist: Shortlist | None = None,
    ) -> None:
        self.shortlist = shortlist
        super().__init__(network, tokenizer, vocabulary, settings, [network.config.decoder_start_token_id])

    @property
    def source_language(self) -> str | None:
        """As its name says: "pt" of firefox:pt-en."""
        pair = re.fullmatch(r"firefox:(\w+)-\w+", self.settings.name)
        return pair[1] if pair else super().source_language

    @classmethod
    def default_dtype(cls, device: torch.device) -> str:
        """int8, as its file is, where that is fast: a batch gives exactly what its sentences give alone."""
        return "int8" if device.type == "cpu" and fast_int8() else "float32"

    def _encoder_output(self, states: Tensor) -> EncoderOutput:
        return EncoderOutput(states)

    def _search_arguments(self, decoding: DecodingSettings | GenerationConfig, forced: int) -> dict[str, Any]:
        arguments = super()._search_arguments(decoding, forced)
        if isinstance(decoding, DecodingSettings):
            return arguments
        return {**self._known(arguments), "max_new_tokens": arguments["max_new_tokens"]}

    def _known(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a configuration of Transformers that this search has; an `InvalidSetting` names another."""
        own, sizes = self.network.generation_config, self.network.config
        unchanged = {
            **NEUTRAL,
            **vars(own),
            "pad_token_id": sizes.pad_token_id,
            "decoder_start_token_id": sizes.decoder_start_token_id,
        }
        for name, value in fields.items():
            if name not in SEARCH_FIELDS and value != unchanged.get(name):
                raise InvalidSetting(
                    f"The search of {self.settings.name} has no {name} ({value}): leave it out of the GenerationConfig."
                )
        known = {name: fields[name] for name in SEARCH_FIELDS if name in fields}
        if known.get("do_sample"):
            if known.get("num_beams", 1) > 1:
                raise InvalidSetting(
                    f"The search of {self.settings.name} cannot sample with beams: set num_beams to 1."
                )
            return {"top_k": SAMPLED_TOKENS, **known}
        return known

    def row_decoder(self, rows_each: int) -> FirefoxDecoder:
        """What computes the steps of a search, for so many rows of each sentence."""
        return FirefoxDecoder(self.network, self._encode, rows_each, self.shortlist, self.settings.key)

    def _encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        tokens, mask = pad(sources, self.padding, self.device)
        known = self._encoded(sources, tokens).get("encoder_outputs")
        return (self.network.encoder(tokens, mask) if known is None else known)[0], mask

    def score(self, pairs: Sequence[TokenPair]) -> Scored:
        """See `Model.score`.  With a shortlist p_MT of any token is relative to the tokens that the source can become.

        Those are what decoding chooses from; others only come in as neighbours' values.
        """
        keys, log_probs = super().score(pairs)
        if self.shortlist is not None:
            rows = torch.split(log_probs, [len(pair.target) for pair in pairs])
            for some, pair in zip(rows, pairs, strict=True):
                allowed = self.shortlist.of(pair.source).to(some.device)
                some.sub_(some[:, allowed].logsumexp(dim=1, keepdim=True))
        return Scored(keys, log_probs)

    @torch.no_grad()
    def generate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingSettings | GenerationConfig,
        step_hook: StepHook | None = None,
    ) -> list[list[Hypothesis]]:
        """See `Model.generate`."""
        arguments = self._search_arguments(decoding, len(self.prefix))
        sampled, nbest = arguments.get("do_sample", False), arguments.get("num_return_sequences", 1)
        beams = 1 if sampled else arguments.get("num_beams", 1)
        each = nbest if sampled else beams
        decoder = self.row_decoder(each)
        decoder.enter(sources)
        prefixes = torch.tensor([self.prefix], device=self.device).expand(len(sources) * each, -1)
        scores = StepScores(decoder, step_hook, len(self.prefix), self.end_tokens if beams == 1 else ())
        end, banned = self.network.generation_config.eos_token_id, self.network.generation_config.suppress_tokens
        longest = arguments["max_new_tokens"]
        if beams == 1:
            drawing = (arguments.get("temperature", 1.0), arguments.get("top_k", 0), arguments.get("top_p", 1.0))
            found = step_by_step(scores, prefixes, sampler(*drawing) if sampled else greedy, end, longest, banned)
        else:
            penalty = arguments.get("length_penalty", 1.0)
            found = beam_search(scores, decoder.follow, prefixes, beams, nbest, end, longest, penalty, banned)
        outputs = found.sequences[:, len(self.prefix) :].tolist()
        hypotheses = [
            Hypothesis(until_end(output, self.end_tokens), score)
            for output, score in zip(outputs, found.scores.tolist(), strict=True)
        ]
        return [hypotheses[i : i + nbest] for i in range(0, len(hypotheses), nbest)]


class StepScores:
    """log p after each prefix, (rows, t) to (rows, vocabulary), as a search asks for them.

    Args:
        decoder: Computes the steps.
        step_hook: Changes what is decoded from; None: nothing does.
        forced: Tokens that are there before the first step.
        ends: Tokens after which a row is finished but stays.
    """

    def __init__(self, decoder: FirefoxDecoder, step_hook: StepHook | None, forced: int, ends: Collection[int]) -> None:
        self.decoder, self.step_hook, self.forced, self.ends = decoder, step_hook, forced, list(ends)

    def __call__(self, prefixes: Tensor) -> Tensor:
        """One step."""
        logits, queries, vocabulary = self.decoder.step(prefixes[:, -1])
        log_probs = some = torch.log_softmax(logits.float(), dim=1)
        if vocabulary is not None:
            log_probs = log_probs.new_full((len(log_probs), self.decoder.vocabulary_size), -torch.inf)
            log_probs[:, vocabulary] = some
        if self.step_hook is not None:
            generated = prefixes[:, self.forced :]
            finished = torch.isin(generated, torch.tensor(self.ends)).any(dim=1) if self.ends else None
            sentences = torch.arange(len(prefixes)) // self.decoder.rows_each

            def left_out(rows: Tensor, tokens: Tensor) -> Tensor:
                known = some[rows].argmax(dim=1)  # one that is not minus infinity
                return self.decoder.logits_of(rows, tokens) - logits[rows, known] + some[rows, known]

            log_probs = self.step_hook(
                Step(queries, log_probs, generated, sentences, finished, None if vocabulary is None else left_out)
            )
        return log_probs.as_subclass(LogProbs)


def _shortlist(folder: Path, vocab_size: int, settings: ModelSettings) -> Shortlist | None:
    if not settings.shortlist:
        return None
    path = find_shortlist(folder)
    if path is None:
        raise NotFound(f"The model folder {folder} has no shortlist (lex.*.s2t.bin): leave out --shortlist.")
    return read_shortlist(path, vocab_size)


class FirefoxSides(PairTokenizer):
    """One SentencePiece vocabulary for both sides."""

    def __init__(self, tokenizer: FirefoxTokenizer) -> None:
        self.tokenizer = tokenizer
        self.unknown = UnknownToken(tokenizer.unknown_token_id, tokenizer.unknown_token_id)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Pieces and the end."""
        return self.tokenizer.encode(list(texts))

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Pieces and the end."""
        return self.tokenizer.encode(list(texts))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the pieces before the end."""
        return self.tokenizer.decode(tokens)

    def token(self, token: int) -> str:
        """The piece."""
        return self.tokenizer.token(token)

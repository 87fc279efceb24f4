"""Firefox Translations ("Bergamot") models: small Marian networks that run well on any CPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.models.base import MODELS, Hypothesis, Model, ModelBackend, PairTokenizer, StepHook, UnknownToken
from knn_seq.models.decoding_hook import decoding_hook
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.firefox_network import (
    EncoderOutput,
    FirefoxTokenizer,
    find_model_folder,
    installed_pairs,
    load_firefox,
)
from knn_seq.models.network import until_end
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
        network, tokenizer = load_firefox(find_model_folder(name))
        start = network.config.decoder_start_token_id
        return FirefoxModel(network, FirefoxSides(tokenizer), tokenizer.vocabulary_hash(), settings, [start])


class FirefoxModel(EncoderDecoderModel):
    """A network that is loaded, and searches, without Transformers: that alone would take seconds to import."""

    @property
    def source_language(self) -> str | None:
        """As its name says: "pt" of firefox:pt-en."""
        pair = re.fullmatch(r"firefox:(\w+)-\w+", self.settings.name)
        return pair[1] if pair else super().source_language

    @property
    def target_language(self) -> str | None:
        """As its name says: "en" of firefox:pt-en."""
        pair = re.fullmatch(r"firefox:\w+-(\w+)", self.settings.name)
        return pair[1] if pair else super().target_language

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

    def _search(
        self, inputs: dict[str, Any], arguments: dict[str, Any], step_hook: StepHook | None, sentences: int
    ) -> list[Hypothesis]:
        beams = 1 if arguments.get("do_sample") else arguments.get("num_beams", 1)
        ends = self.end_tokens if beams == 1 else ()
        hook = (
            decoding_hook(self.network, self.key_hook, step_hook, sentences, ends=ends) if step_hook else nullcontext()
        )
        with hook:
            found = self.network.generate(**{**arguments, **inputs, "return_dict_in_generate": True})
        outputs = found.sequences[:, self._forced_length(inputs) :].tolist()
        return [
            Hypothesis(until_end(output, self.end_tokens), score)
            for output, score in zip(outputs, found.scores.tolist(), strict=True)
        ]


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

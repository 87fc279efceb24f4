"""Firefox Translations ("Bergamot") models: small Marian networks that run well on any CPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.models.base import MODELS, Model, ModelBackend, PairTokenizer, UnknownToken
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.firefox_decoder import KEYS, FirefoxDecoder
from knn_seq.models.firefox_network import (
    EncoderOutput,
    FirefoxTokenizer,
    find_model_folder,
    installed_pairs,
    load_firefox,
)
from knn_seq.models.search import RowDecoder
from knn_seq.models.search.plan import SearchPlan, unknown_argument
from knn_seq.settings import ModelSettings

FLOAT_BYTES = 4  # of a weight, in what the network computes


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

    def row_decoder(self, rows_each: int) -> RowDecoder:
        """One for sentences at different steps, unless the key is somewhere inside of the network."""
        if self.settings.key not in KEYS:
            return super().row_decoder(rows_each)
        return FirefoxDecoder(self, rows_each)

    def _plan(self, arguments: dict[str, Any], seed: int | None) -> SearchPlan:
        plan = super()._plan(arguments, seed)
        if plan is None:
            name = unknown_argument({**arguments, "forced_bos_token_id": None})
            raise InvalidSetting(
                f"The search of {self.settings.name} has no {name} ({arguments.get(str(name))}) as it is given: "
                "leave it out of the GenerationConfig."
            )
        return plan


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

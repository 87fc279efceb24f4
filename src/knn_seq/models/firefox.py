"""Firefox Translations ("Bergamot") models: small Marian networks that run well on any CPU."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from knn_seq.models.base import MODELS, Model, ModelBackend, PairTokenizer
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.firefox_network import (
    EncoderOutput,
    FirefoxTokenizer,
    find_model_folder,
    installed_pairs,
    load_firefox,
)
from knn_seq.settings import ModelSettings


@MODELS.register("firefox")
class FirefoxBackend(ModelBackend):
    """`firefox:pt-en` for a language pair that is installed, `firefox:PATH` for a folder."""

    @classmethod
    def installed(cls) -> list[str]:
        """Language pairs."""
        return installed_pairs()

    @classmethod
    def load(cls, name: str, settings: ModelSettings) -> Model:
        """Read the folder's network and vocabulary."""
        network, tokenizer = load_firefox(find_model_folder(name))
        start = network.config.decoder_start_token_id
        return FirefoxModel(network, FirefoxSides(tokenizer), tokenizer.vocabulary_hash(), settings, [start])


class FirefoxModel(EncoderDecoderModel):
    """A network that is loaded, and searches, without Transformers: that alone would take seconds to import."""

    def _encoder_output(self, states: Tensor) -> EncoderOutput:
        return EncoderOutput(states)


class FirefoxSides(PairTokenizer):
    """One SentencePiece vocabulary for both sides."""

    def __init__(self, tokenizer: FirefoxTokenizer) -> None:
        self.tokenizer = tokenizer

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

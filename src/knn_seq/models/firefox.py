"""Firefox Translations ("Bergamot") models: small Marian networks that run well on any CPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting, NotFound
from knn_seq.models.base import MODELS, Model, ModelBackend, PairTokenizer, UnknownToken
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.firefox_network import (
    EncoderOutput,
    FirefoxNetwork,
    FirefoxTokenizer,
    find_model_folder,
    installed_pairs,
    load_firefox,
)
from knn_seq.models.firefox_network.decoder import KEYS, FirefoxDecoder
from knn_seq.models.firefox_network.shortlist_file import find_shortlist, read_shortlist
from knn_seq.models.int8 import fast_int8
from knn_seq.models.search import RowDecoder
from knn_seq.models.search.plan import SearchPlan, unknown_argument
from knn_seq.models.shortlist import Shortlist
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
        super().__init__(network, tokenizer, vocabulary, settings, [network.config.decoder_start_token_id])
        self.shortlist = shortlist

    @property
    def source_language(self) -> str | None:
        """As its name says: "pt" of firefox:pt-en."""
        return self._languages()[0] or super().source_language

    @property
    def target_language(self) -> str | None:
        """As its name says: "en" of firefox:pt-en."""
        return self._languages()[1] or super().target_language

    @property
    def vocabulary_size(self) -> int:
        """As its file says."""
        return self.network.config.vocab_size  # type: ignore[no-any-return]

    def _languages(self) -> tuple[str | None, str | None]:
        pair = re.fullmatch(r"firefox:(\w+)-(\w+)", self.settings.name)
        return (pair[1], pair[2]) if pair else (None, None)

    @classmethod
    def default_dtype(cls, device: torch.device) -> str:
        """int8, as its file is, where that is fast: a batch gives exactly what its sentences give alone."""
        return "int8" if device.type == "cpu" and fast_int8() else "float32"

    def _encoder_output(self, states: Tensor) -> EncoderOutput:
        return EncoderOutput(states)

    def row_decoder(self, rows_each: int, attends: bool = False) -> RowDecoder:
        """One for sentences at different steps, unless the key is somewhere inside of the network."""
        if self.settings.key not in KEYS:
            return super().row_decoder(rows_each, attends)
        return FirefoxDecoder(self.network, self.decoding_state, rows_each, self.shortlist, self.settings.key)

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


def _shortlist(folder: Path, vocab_size: int, settings: ModelSettings) -> Shortlist | None:
    if not settings.shortlist:
        return None
    path = find_shortlist(folder)
    if path is None:
        raise NotFound(f"The model folder {folder} has no shortlist (lex.*.s2t.bin): leave out --shortlist.")
    return read_shortlist(path, vocab_size)

"""Models that Transformers loads itself: by hub name, from a local folder, or from a GGUF file."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, NotFound
from knn_seq.models.base import MODELS, Model, ModelBackend, PairTokenizer, UnknownToken
from knn_seq.models.decoder_only import DecoderOnlyModel
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.fingerprint import vocabulary_fingerprint
from knn_seq.models.gguf import is_gguf, require_gguf_libraries
from knn_seq.models.prompt import PromptTokenizer, require_source, unknown_token
from knn_seq.models.weight_files import stored_weights
from knn_seq.runtime.libraries import require_memory_for_transformers
from knn_seq.settings import ModelSettings


@MODELS.register("transformers")
class TransformersBackend(ModelBackend):
    """Chooses the adapter that fits the checkpoint."""

    @classmethod
    def weight_bytes(cls, name: str, settings: ModelSettings) -> int:
        """Of the files of a folder, or of a model that was downloaded before, in the dtype that it is to run in."""
        return stored_weights(name, settings.dtype or "float32")

    @classmethod
    def load(cls, name: str, settings: ModelSettings) -> Model:
        """An encoder-decoder or a decoder-only model, as its configuration says."""
        require_memory_for_transformers()
        import transformers

        transformers.utils.logging.disable_progress_bar()  # loading takes a moment; the work behind it has its own bars
        place, options = name, {}
        if is_gguf(name):
            require_gguf_libraries(name)
            place, file = os.path.split(os.path.abspath(name))
            options = {"gguf_file": file}
        try:
            config = transformers.AutoConfig.from_pretrained(place, **options)
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options)
            auto = (
                transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
            )
            network = auto.from_pretrained(place, dtype="auto", **options)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise _why_not_loaded(name, error) from error
        return wrap_network(network, tokenizer, settings)


def adopt_network(network: Any, tokenizer: Any, settings: ModelSettings) -> Model:
    """The adapter for a network that a user has loaded.  It stays on its device, unless one is given, and in its dtype.

    Args:
        network: The network.
        tokenizer: Its tokenizer.
        settings: Everything else.
    """
    if not hasattr(network, "generate") or not hasattr(network, "config"):
        raise InvalidSetting(
            f"{type(network).__name__} is no model: give a name, a network of Transformers, or a Model."
        )
    if tokenizer is None:
        raise InvalidSetting(f"{type(network).__name__} needs its tokenizer: give tokenizer=, too.")
    return wrap_network(
        network,
        tokenizer,
        replace(
            settings,
            name=settings.name or network.name_or_path or type(network).__name__,
            device=settings.device or str(network.device),
            dtype=str(network.dtype).removeprefix("torch."),
        ),
    )


def wrap_network(network: Any, tokenizer: Any, settings: ModelSettings) -> Model:
    """The adapter that fits a network and its tokenizer."""
    vocabulary = vocabulary_fingerprint(_vocabulary(tokenizer))
    if not network.config.is_encoder_decoder:
        return DecoderOnlyModel(network, PromptTokenizer(tokenizer, settings), vocabulary, settings)
    _set_languages(tokenizer, settings)
    prefix = _decoder_prefix(network, tokenizer, settings)
    sides = SidesTokenizer(tokenizer, settings, prefix, end=network.generation_config.eos_token_id)
    return EncoderDecoderModel(network, sides, vocabulary, settings, prefix)


class SidesTokenizer(PairTokenizer):
    """The tokenizer of an encoder-decoder, for its two sides."""

    def __init__(self, tokenizer: Any, settings: ModelSettings, prefix: Sequence[int], end: int) -> None:
        self.tokenizer, self.prefix, self.end = tokenizer, list(prefix), end
        self.target_side = _target_side(tokenizer)
        self.unknown = UnknownToken(unknown_token(tokenizer, end), unknown_token(self.target_side, end))
        self.prompt = settings.prompt
        if self.prompt is None and getattr(tokenizer, "supported_language_codes", None) and settings.target_lang:
            self.prompt = ">>" + settings.target_lang + "<< {source}"
        if self.prompt is not None:
            require_source(self.prompt)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens with the language and the end marked as the model expects it."""
        if self.prompt is not None:
            texts = [self.prompt.replace("{source}", text) for text in texts]
        encoded: list[list[int]] = self.tokenizer(list(texts))["input_ids"]
        return encoded

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens without what is forced before them, and with just one end."""
        targets = []
        for tokens in self.target_side(text_target=list(texts))["input_ids"]:
            if len(self.prefix) > 1 and tokens[:1] == self.prefix[-1:]:
                tokens = tokens[1:]
            if self.end in tokens:
                tokens = tokens[: tokens.index(self.end)]
            targets.append([*tokens, self.end])
        return targets

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without special tokens."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text.strip()

    def token(self, token: int) -> str:
        """The vocabulary's own spelling."""
        return str(self.tokenizer.convert_ids_to_tokens(token))


def _target_side(tokenizer: Any) -> Any:
    """FSMT's tokenizer knows how to encode the source side only; this makes one for the target side of it."""
    if not hasattr(tokenizer, "tgt_vocab_size"):
        return tokenizer
    side = copy.copy(tokenizer)
    side.encoder = {token: number for number, token in tokenizer.decoder.items()}
    side.src_lang = tokenizer.tgt_lang
    return side


def _vocabulary(tokenizer: Any) -> dict[str, int]:
    """Tokens and their numbers; those of the target side too where it has a vocabulary of its own."""
    vocabulary: dict[str, int] = dict(tokenizer.get_vocab())
    target = getattr(tokenizer, "decoder", None)
    if isinstance(target, dict):
        vocabulary |= {f"target {token}": number for number, token in target.items()}
    return vocabulary


def _set_languages(tokenizer: Any, settings: ModelSettings) -> None:
    known = _languages(tokenizer)
    for side in ("source", "target"):
        language = getattr(settings, f"{side}_lang")
        if known and language is None:
            raise InvalidSetting(
                f"The model {settings.name} translates between many languages: give --source-lang and --target-lang, "
                f"for example {', '.join(known[:6])}."
            )
        if language is not None and known and language not in known:
            raise InvalidSetting(f"The model {settings.name} has no language '{language}'; it has {', '.join(known)}.")
    if known:
        tokenizer.src_lang, tokenizer.tgt_lang = settings.source_lang, settings.target_lang


def _languages(tokenizer: Any) -> list[str]:
    for name in ("lang_code_to_id", "fairseq_language_codes"):
        if getattr(tokenizer, name, None):
            return sorted(getattr(tokenizer, name))
    if not hasattr(tokenizer, "src_lang") or not hasattr(tokenizer, "tgt_lang"):
        return []
    return sorted(
        token for token in (tokenizer.extra_special_tokens or []) if tokenizer.convert_tokens_to_ids(token) is not None
    )


def _decoder_prefix(network: Any, tokenizer: Any, settings: ModelSettings) -> list[int]:
    """The start token and, for multilingual models, the target language's token."""
    config = network.generation_config
    start = config.decoder_start_token_id
    if start is None:
        start = config.bos_token_id
    forced = config.forced_bos_token_id
    if settings.target_lang is not None and _languages(tokenizer):
        language = _language_token(tokenizer, settings.target_lang)
        labels = tokenizer(text_target="a")["input_ids"]
        if labels[0] != language:  # the language is the start token, as in the first mBART
            return [language]
        forced = language
    return [start] if forced is None else [start, forced]


def _language_token(tokenizer: Any, language: str) -> int:
    if hasattr(tokenizer, "get_lang_id"):
        return int(tokenizer.get_lang_id(language))
    return int(tokenizer.convert_tokens_to_ids(language))


def _why_not_loaded(name: str, error: Exception) -> KnnSeqError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if is_gguf(name):
        return DamagedFile(f"{name} does not hold a model that Transformers can load: {reason}")
    if os.path.isdir(name):
        return DamagedFile(f"The folder {name} does not hold a model that Transformers can load: {reason}")
    if os.path.exists(name):
        return InvalidSetting(
            f"{name} is a file, not a model: give the folder that holds config.json, a hub name, or a .gguf file."
        )
    return NotFound(
        f"There is no model '{name}': it is neither a folder here nor a model that could be had from the hub."
    )

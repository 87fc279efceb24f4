"""Decoding settings as arguments of generate()."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from knn_seq.errors import InvalidSetting
from knn_seq.settings import DecodingSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig

# Each of these runs the network other than once a step with all rows, or needs more than a configuration.
_OTHER_SEARCHES = (
    "num_beam_groups",
    "penalty_alpha",
    "dola_layers",
    "constraints",
    "force_words_ids",
    "prompt_lookup_num_tokens",
    "assistant_early_exit",
    "use_mtp",
    "guidance_scale",
    "prefill_chunk_size",
    "stop_strings",
    "token_healing",
)
_OUR_OWN = ("output_scores", "output_logits", "output_attentions", "output_hidden_states", "transformers_version")


def search_arguments(decoding: DecodingSettings | GenerationConfig, longest: int | None, forced: int) -> dict[str, Any]:
    """The arguments of generate() that say how to search.

    Args:
        decoding: The settings.
        longest: Tokens that the model can put out; None: any number.
        forced: Tokens of an output that are there before the first step.
    """
    if isinstance(decoding, DecodingSettings):
        arguments, wanted = _from_settings(decoding), decoding.max_length
    else:
        arguments, wanted = given_fields(decoding), _wanted_length(decoding, forced)
    return arguments | {"max_new_tokens": wanted if longest is None else min(wanted, longest), "max_length": None}


def given_fields(config: GenerationConfig) -> dict[str, Any]:
    """The fields of a configuration of Transformers that say something; all others are the model's own."""
    try:
        fields: dict[str, Any] = {name: value for name, value in vars(config).items() if value is not None}
    except TypeError:
        raise InvalidSetting(f"Decoding settings are DecodingSettings or a GenerationConfig, not {config!r}.") from None
    for name in _OTHER_SEARCHES:
        unused: tuple[Any, ...] = (
            (None, False, [], 1) if name in ("num_beam_groups", "guidance_scale") else (None, False, [])
        )
        if fields.get(name) not in unused:
            raise InvalidSetting(
                f"A GenerationConfig with {name}={fields[name]} cannot be used here: "
                "search greedily, with beams or by sampling."
            )
    return {name: value for name, value in fields.items() if name not in _OUR_OWN and not name.startswith("_")}


def _from_settings(decoding: DecodingSettings) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "num_return_sequences": decoding.nbest,
        "num_beams": 1 if decoding.sample else decoding.beam_size,
        "do_sample": decoding.sample,
    }
    if decoding.sample:
        arguments |= {"temperature": decoding.sampling_temperature, "top_k": decoding.top_k, "top_p": decoding.top_p}
    elif decoding.beam_size > 1:
        arguments |= {"length_penalty": decoding.length_penalty, "early_stopping": False}
    return arguments


def _wanted_length(config: GenerationConfig, forced: int) -> int:
    """Transformers' `max_length` counts what is there before the first step."""
    if config.max_new_tokens is not None:
        return int(config.max_new_tokens)
    if config.max_length is None:
        return DecodingSettings.max_length
    if config.max_length <= forced:
        raise InvalidSetting(
            f"The GenerationConfig's max_length ({config.max_length}) leaves no token to generate behind the {forced} "
            "that are given: use max_new_tokens."
        )
    return int(config.max_length) - forced

"""How a sentence is searched for, and which arguments of generate() this search knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SearchPlan:
    """Everything that the search of one sentence depends on, in the words of Transformers where it has any."""

    max_new_tokens: int
    ends: frozenset[int]  # the tokens that end an output
    beams: int = 1
    nbest: int = 1  # outputs of a sentence
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    seed: int | None = None  # None: torch's own random numbers
    min_length: int = 0  # with what is there before the first step
    min_new_tokens: int = 0
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()  # of several tokens
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    forced_ends: tuple[int, ...] = ()  # the last token of an output that is as long as may be

    @property
    def rows(self) -> int:
        """Prefixes that are open at a time."""
        return self.nbest if self.sample else self.beams

    @property
    def bans(self) -> bool:
        """Whether what may come next depends on the prefix."""
        return bool(
            self.no_repeat_ngram_size
            or self.bad_words
            or self.min_length
            or self.min_new_tokens
            or self.begin_suppress_tokens
        )


# What other arguments of generate() may be because it changes nothing; None always does.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "use_cache": (True,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "guidance_scale": (1.0,),
    "remove_invalid_values": (False,),
    "return_dict_in_generate": (False,),
    "renormalize_logits": (False,),
    "output_scores": (False,),
    "output_logits": (False,),
    "output_attentions": (False,),
    "output_hidden_states": (False,),
    "low_memory": (False,),
    "is_assistant": (False,),
    "cache_implementation": ("dynamic", "hybrid"),
    "exponential_decay_length_penalty": (),
}
# Of no concern to the search: lengths are given as max_new_tokens, the start is in the prefix, and the rest is about
# searches that nobody asks for.
IGNORED = frozenset(
    {
        "max_length",
        "pad_token_id",
        "bos_token_id",
        "decoder_start_token_id",
        "transformers_version",
        "generation_kwargs",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "assistant_confidence_threshold",
        "assistant_lookbehind",
        "target_lookbehind",
        "max_cache_len",
        "disable_compile",
        "trust_remote_code",
    }
)
KNOWN = frozenset(
    {
        "max_new_tokens",
        "eos_token_id",
        "num_beams",
        "num_return_sequences",
        "length_penalty",
        "early_stopping",
        "do_sample",
        "temperature",
        "top_k",
        "top_p",
        "min_length",
        "min_new_tokens",
        "suppress_tokens",
        "begin_suppress_tokens",
        "bad_words_ids",
        "no_repeat_ngram_size",
        "repetition_penalty",
        "forced_eos_token_id",
    }
)


def unknown_argument(arguments: Mapping[str, Any]) -> str | None:
    """The first argument of generate() that asks for what this search does not do; None: it does it all.

    Args:
        arguments: The model's own and those that are given, None where nothing is said.
    """
    for name, value in arguments.items():
        if value is None or value == [] or name in KNOWN or name in IGNORED or name.startswith("_"):
            continue
        if value not in NEUTRAL.get(name, ()):
            return name
    beams, outputs = arguments.get("num_beams") or 1, arguments.get("num_return_sequences") or 1
    if arguments.get("do_sample"):
        return "num_beams" if beams > 1 else None
    return "num_return_sequences" if outputs > beams else None


def search_plan(arguments: Mapping[str, Any], seed: int | None = None) -> SearchPlan | None:
    """The plan that says what arguments of generate() say; None: generate() itself must search.

    Args:
        arguments: As for `unknown_argument`, `max_new_tokens` among them.
        seed: Of the sampling.
    """
    if unknown_argument(arguments) is not None:
        return None
    said = {name: value for name, value in arguments.items() if value is not None}
    ends = frozenset(as_tuple(said.get("eos_token_id")))
    bad_words = [tuple(word) for word in said.get("bad_words_ids", ())]
    bad_tokens = (word[0] for word in bad_words if len(word) == 1 and word[0] not in ends)
    return SearchPlan(
        said["max_new_tokens"],
        ends,
        beams=said.get("num_beams", 1),
        nbest=said.get("num_return_sequences", 1),
        length_penalty=said.get("length_penalty", 1.0),
        early_stopping=said.get("early_stopping", False),
        sample=said.get("do_sample", False),
        temperature=said.get("temperature", 1.0),
        top_k=said.get("top_k", 50),
        top_p=said.get("top_p", 1.0),
        seed=seed,
        min_length=said.get("min_length", 0),
        min_new_tokens=said.get("min_new_tokens", 0),
        suppress_tokens=(*said.get("suppress_tokens", ()), *bad_tokens),
        begin_suppress_tokens=tuple(said.get("begin_suppress_tokens", ())),
        bad_words=tuple(word for word in bad_words if len(word) > 1),
        no_repeat_ngram_size=said.get("no_repeat_ngram_size", 0),
        repetition_penalty=said.get("repetition_penalty", 1.0),
        forced_ends=as_tuple(said.get("forced_eos_token_id")),
    )


def as_tuple(tokens: int | Iterable[int] | None) -> tuple[int, ...]:
    """A token, or several, or none."""
    return (tokens,) if isinstance(tokens, int) else tuple(tokens or ())

"""Systems to compare, as people write them: "NAME: RETRIEVER,setting=value,...", with only what is to be said.

An option of a part is written with the part before it: index.nprobe=16, retriever.refine_factor=8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from knn_seq.errors import InvalidSetting
from knn_seq.settings import DecodingSettings, SearchSettings, reject_unknown, with_value

if TYPE_CHECKING:
    from knn_seq.translator import Translator

BASE = "base"
_NAMED = re.compile(r"([^=:]+):(.*)", re.DOTALL)
_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


def parse_systems(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The settings of each system by its name, which is what was written if no name was given."""
    systems: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = _NAMED.fullmatch(text.strip())
        name, settings = (match[1].strip(), match[2]) if match else (text.strip(), text)
        if name == BASE:
            raise InvalidSetting(f"The name '{BASE}' is the model's own: call the system '{text}' something else.")
        if name in systems:
            raise InvalidSetting(f"Two systems are called '{name}': put a name and a colon before the settings of one.")
        systems[name] = _settings(settings)
    return systems


def _settings(text: str) -> dict[str, Any]:
    written: dict[str, str] = {}
    last = "retriever"
    for number, part in enumerate(text.split(",")):
        name, equals, value = part.partition("=")
        if equals:
            last = name.strip().replace("-", "_")
            if last in written:
                raise InvalidSetting(f"The system '{text.strip()}' says {last} twice.")
            written[last] = value.strip()
        elif number == 0:
            written[last] = part.strip()
        else:  # the names of indexes have commas: index=IVF64,PQ16
            written[last] += f",{part.strip()}"
    options: dict[str, dict[str, str]] = {}
    for name in [name for name in written if "." in name]:
        part, _, option = name.partition(".")
        options.setdefault(f"{part}_options", {})[option] = written.pop(name)
    reject_unknown(options, SearchSettings)
    return {name: _value(name, value) for name, value in written.items()} | options


def _value(name: str, text: str) -> Any:
    reject_unknown({name: text}, SearchSettings, DecodingSettings)
    hint = {**get_type_hints(SearchSettings), **get_type_hints(DecodingSettings)}[name]
    kind = next(each for each in get_args(hint) or (hint,) if each is not type(None))
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise InvalidSetting(f"In a system, {name} must be {_KINDS[kind]}, not '{text}'.") from None


def open_systems(translator: Translator, systems: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """All settings of the model alone and of each system; a `InvalidSetting` if one of them cannot run.

    Args:
        translator: The translator; its settings hold where a system leaves them open.
        systems: What was said of each.
    """
    every: dict[str, dict[str, Any]] = {BASE: {"weight": 0.0}}
    for name, own in systems.items():
        search, _ = translator.settings(own)
        translator.decoder.combiner(search)
        if search.weight:
            translator.decoder.retriever(search)
        every[name] = {**own, **with_value(search)}
    return every

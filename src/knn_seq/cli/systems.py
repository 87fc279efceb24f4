"""Systems to compare, as people write them: "NAME: RETRIEVER,setting=value,...", with only what is to be said.

An option of a part is written with the part before it: index.nprobe=16, retriever.refine_factor=8.  A system that
searches another datastore names it: "law=STORE", "law: store=STORE,k=8".
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from knn_seq.cli.collector import collector_paused
from knn_seq.cli.options import chosen
from knn_seq.cli.searched import open_translation_memory, require_temperature
from knn_seq.errors import InvalidSetting
from knn_seq.settings import DecodingSettings, SearchSettings, reject_unknown, with_value

if TYPE_CHECKING:
    from knn_seq.evaluate import SystemSetup
    from knn_seq.storage.translation_memory import TranslationMemory
    from knn_seq.translator import Translator

BASE = "base"
MEMORY = "memory"  # the retriever of translation memories
_NAMED = re.compile(r"([^=:]+):(.*)", re.DOTALL)
_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}
_SETTINGS = {**get_type_hints(SearchSettings), **get_type_hints(DecodingSettings)}
_OF_DATASTORES = ("retriever", "index", "index_options", "retriever_options")


class WrittenSystem(NamedTuple):
    """What was said of a system."""

    settings: Mapping[str, Any] = {}
    store: str | None = None  # the folder of its own datastore


def parse_systems(texts: Iterable[str]) -> dict[str, WrittenSystem]:
    """Each system by its name, which is what was written if no name was given."""
    systems: dict[str, WrittenSystem] = {}
    for text in texts:
        name, written = _named(text.strip())
        if name == BASE:
            raise InvalidSetting(f"The name '{BASE}' is the model's own: call the system '{text}' something else.")
        if name in systems:
            raise InvalidSetting(f"Two systems are called '{name}': put a name and a colon before the settings of one.")
        said = _said(written)
        store = said.pop("store", None)
        systems[name] = WrittenSystem(_settings(said), store)
    return systems


def _named(text: str) -> tuple[str, str]:
    """The name of a system, and what is said of it."""
    if match := _NAMED.fullmatch(text):
        return match[1].strip(), match[2]
    name, equals, rest = (part.strip() for part in text.partition("="))
    if not equals or name == "store" or name.replace("-", "_") in _SETTINGS or "." in name or "," in name:
        return text, text
    folder = rest.partition(",")[0]
    if not Path(folder).is_dir():
        raise InvalidSetting(
            f"There is no setting '{name}', and no datastore in {folder}: choose from {', '.join(sorted(_SETTINGS))}, "
            "or write NAME=STORE with a datastore's folder."
        )
    return name, f"store={rest}"


def _said(text: str) -> dict[str, str]:
    """What is written after each name."""
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
    return written


def _settings(written: dict[str, str]) -> dict[str, Any]:
    options: dict[str, dict[str, str]] = {}
    for name in [name for name in written if "." in name]:
        part, _, option = name.partition(".")
        options.setdefault(f"{part}_options", {})[option] = written.pop(name)
    reject_unknown(options, SearchSettings)
    return {name: _value(name, value) for name, value in written.items()} | options


def _value(name: str, text: str) -> Any:
    reject_unknown({name: text}, SearchSettings, DecodingSettings)
    hint = _SETTINGS[name]
    kind = next(each for each in get_args(hint) or (hint,) if each is not type(None))
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise InvalidSetting(f"In a system, {name} must be {_KINDS[kind]}, not '{text}'.") from None


@collector_paused()
def open_systems(
    arguments: argparse.Namespace, translator: Translator, systems: Mapping[str, WrittenSystem]
) -> dict[str, SystemSetup]:
    """The model alone and each system, ready to translate; an `InvalidSetting` if one of them cannot run.

    Args:
        arguments: The command's; its settings hold where a system leaves them open.
        translator: The translator of systems that search nothing of their own.
        systems: What was said of each.
    """
    from knn_seq.evaluate import SystemSetup

    every = {BASE: SystemSetup(translator, {"weight": 0.0})}
    opened: dict[str | None, Translator] = {None: translator}
    memories: dict[str | None, TranslationMemory] = {}
    for name, (own, store) in systems.items():
        if store not in opened:
            opened[store] = _translator(arguments, translator, store=store)
        its = opened[store]
        if own.get("retriever", arguments.retriever) == MEMORY:
            if store not in memories:
                memories[store] = _memory(arguments, its, store)
            # A translator of its own: it keeps keys of earlier sentences, and is calibrated with these settings.
            its = _translator(arguments, translator, translation_memory=memories[store], **own)
        search, _ = its.settings(own)
        if own.get("temperature", arguments.temperature) is not None:
            option = "temperature" if "temperature" in own else "--temperature"
            require_temperature(search.combiner, f"The system '{name}' cannot have a temperature: the combiner", option)
        its.decoder.combiner(search)
        if search.weight:
            its.decoder.retriever(search)
        every[name] = SystemSetup(its, {**own, **with_value(search)})
    return every


def _memory(arguments: argparse.Namespace, translator: Translator, store: str | None) -> TranslationMemory:
    """The sentence pairs that the retriever `memory` searches: those of the file, or else of the datastore."""
    from knn_seq.storage.translation_memory import TranslationMemory

    searched = translator.store
    if isinstance(searched, TranslationMemory):
        return searched
    corpus = open_translation_memory(arguments) if store is None else None
    if corpus is not None:
        corpus.prefer_languages(translator.model)
        return TranslationMemory.open(corpus)
    return TranslationMemory(searched.live_texts(), f"sentence pairs of {searched.path.name}")


def _translator(arguments: argparse.Namespace, like: Translator, **options: Any) -> Translator:
    """Another translator with the same model."""
    from knn_seq.translator import Translator

    given = chosen(arguments, SearchSettings, DecodingSettings)
    if "translation_memory" in options:
        given = {name: value for name, value in given.items() if name not in _OF_DATASTORES}
    return Translator(model=like.model, **{**given, **options})

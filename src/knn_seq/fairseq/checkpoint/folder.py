"""Finding what belongs to a checkpoint: its dictionaries, its BPE, its languages."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

from knn_seq.errors import DamagedFile, InvalidSetting, NotFound
from knn_seq.fairseq.checkpoint.options import OPTIONS_NAME, is_multilingual
from knn_seq.fairseq.checkpoint.subword_files import find_subwords
from knn_seq.fairseq.checkpoint.tokenizer import FairseqTokenizer, Moses, Side
from knn_seq.fairseq.dictionary import Dictionary
from knn_seq.settings import ModelSettings

CHECKPOINTS = ("model.pt", "checkpoint_best.pt")
TOKENIZERS = (None, "space", "moses")
LANGUAGE_TOKENS = {"multilingual": "__{}__", "mbart": "[{}]"}


def find_checkpoint(name: str) -> Path:
    """The checkpoint's file: `name` itself, or what the folder of that name holds."""
    path = Path(name)
    if not path.is_dir():
        return path
    for candidate in CHECKPOINTS:
        if (path / candidate).exists():
            return path / candidate
    raise NotFound(f"The folder {path} has neither {' nor '.join(CHECKPOINTS)}: give the checkpoint's own path.")


def with_options_beside(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The options of a checkpoint, with those of `fairseq.json` in its folder in their place."""
    path = folder / OPTIONS_NAME
    if not path.exists():
        return options
    try:
        beside = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(beside, dict):
        raise DamagedFile(f"{path} must hold an object with options such as tokenizer and bpe.")
    return options | beside


def find_tokenizer(
    options: dict[str, Any], folder: Path, rows: tuple[int, int], settings: ModelSettings
) -> tuple[FairseqTokenizer, list[int]]:
    """The tokenizer, and what the decoder reads before the first target token but for the end-of-sentence token.

    Args:
        options: The checkpoint's.
        folder: Where the checkpoint is.
        rows: How many tokens the encoder and the decoder embed.
        settings: The user's, who may give the languages and a folder of dictionaries.
    """
    folders = list(_folders(options, folder, settings))
    tokens = language_tokens(options, folders) if is_multilingual(options) else {}
    told = _languages_of_files(folders, rows)
    sides = []
    for side, size in zip(("source", "target"), rows, strict=True):
        language = _language(side, options, settings, told, list(tokens))
        path = _find_dictionary(side, language, options, folders)
        dictionary = Dictionary.read(path)
        if tokens and len(dictionary) != size:
            dictionary = dictionary.extended(tokens.values())
        if len(dictionary) != size:
            raise DamagedFile(
                f"{path} has {len(dictionary):,} symbols and the model's {side} side embeds {size:,}: "
                "put the dictionary that it was trained with beside the checkpoint."
            )
        sides.append(
            Side(language, dictionary, find_subwords(side, language, options, folders), _words(language, options))
        )
    source, target = sides
    before = {"src": source.language, "tgt": target.language}.get(options.get("encoder_langtok") or "")
    source_prefix = [source.dictionary.number(tokens[before])] if tokens and before else []
    target_prefix = (
        [target.dictionary.number(tokens[target.language])] if tokens and options.get("decoder_langtok") else []
    )
    return FairseqTokenizer(source, target, source_prefix, list(tokens)), target_prefix


def language_tokens(options: dict[str, Any], folders: list[Path]) -> dict[str, str]:
    """The token of each language of a multilingual model, in the order in which they were added to the dictionary."""
    style = LANGUAGE_TOKENS[options.get("lang_tok_style") or "multilingual"]
    specs = options.get("langtoks_specs") or ["main"]
    if specs not in ("main", ["main"]):
        raise InvalidSetting(f"The option 'langtoks_specs' ({specs}) of the checkpoint is not supported.")
    languages = options.get("langs")
    if isinstance(languages, str):
        languages = languages.split(",")
    if not languages and options.get("lang_dict"):
        name = Path(options["lang_dict"]).name
        for path in (Path(options["lang_dict"]), *(folder / name for folder in folders)):
            if path.is_file():
                languages = path.read_text(encoding="utf-8").split()
                break
        else:
            raise NotFound(f"The list of languages {name} was not found: put it beside the checkpoint.")
    if not languages:
        pairs = options.get("lang_pairs") or []
        pairs = pairs.split(",") if isinstance(pairs, str) else pairs
        languages = sorted({language for pair in pairs for language in pair.split("-")})
    return {language: style.format(language) for language in languages}


def _folders(options: dict[str, Any], folder: Path, settings: ModelSettings) -> Iterator[Path]:
    yield folder
    data = options.get("data")
    if isinstance(data, str) and data:
        yield Path(data.split(os.pathsep)[0])  # further ones hold more text, and the same dictionaries
    if settings.data is not None:
        yield Path(settings.data)


def _language(
    side: str, options: dict[str, Any], settings: ModelSettings, told: dict[str, str], known: list[str]
) -> str:
    chosen = getattr(settings, f"{side}_lang")
    if known:
        if chosen is None:
            raise InvalidSetting(
                f"The model {settings.name} translates between many languages: give --source-lang and --target-lang, "
                f"for example {', '.join(known[:6])}."
            )
        if chosen not in known:
            raise InvalidSetting(f"The model {settings.name} has no language '{chosen}'; it has {', '.join(known)}.")
        return str(chosen)
    own = options.get(f"{side}_lang")
    if own and chosen and own != chosen:
        raise InvalidSetting(f"The {side} language of the model {settings.name} is {own}, not {chosen}.")
    if own or chosen or side in told:
        return str(own or chosen or told[side])
    raise InvalidSetting(
        f"Neither the checkpoint {settings.name} nor the files with it tell its languages: give the data-bin folder of "
        "its training with --data, or --source-lang and --target-lang."
    )


def _languages_of_files(folders: list[Path], rows: tuple[int, int]) -> dict[str, str]:
    """The languages, as far as the binarised text and the dictionaries of one folder tell them by name and size."""
    for folder in folders:
        dictionaries = {path.name.split(".")[1]: path for path in sorted(folder.glob("dict.?*.txt"))}
        names = (re.search(r"\.([^.-]+)-([^.-]+)\.", path.name) for path in folder.glob("*.*-*.*"))
        pairs = {match.groups() for match in names if match and dictionaries.keys() >= set(match.groups())}
        if not pairs and len(dictionaries) == 2:
            sizes = {language: len(Dictionary.read(path)) for language, path in dictionaries.items()}
            pairs = {pair for pair in permutations(sizes) if tuple(sizes[language] for language in pair) == rows}
        if len(pairs) == 1:
            return dict(zip(("source", "target"), pairs.pop(), strict=True))
    return {}


def _find_dictionary(side: str, language: str, options: dict[str, Any], folders: list[Path]) -> Path:
    given = [options.get(f"{side}_dict"), options.get("fixed_dictionary")]
    names = [*(Path(name).name for name in given if name), f"dict.{language}.txt", "dict.txt"]
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise NotFound(
        f"The dictionary dict.{language}.txt was not found in {' nor in '.join(map(str, folders))}: "
        "put it beside the checkpoint, or give its folder with --data."
    )


def _words(language: str, options: dict[str, Any]) -> Moses | None:
    name = options.get("tokenizer")
    if name not in TOKENIZERS:
        raise InvalidSetting(f"The option 'tokenizer' ({name}) of the checkpoint is not supported.")
    if name != "moses":
        return None
    return Moses(language, not options.get("moses_no_dash_splits"), not options.get("moses_no_escape"))

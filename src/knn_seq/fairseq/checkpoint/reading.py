"""Reads fairseq's checkpoint files with torch alone, and runs nothing of what they hold."""

from __future__ import annotations

import io
import pickletools
import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from knn_seq.errors import DamagedFile, NotFound

# Libraries whose objects stand in checkpoints beside the weights: configurations, meters, numbers.
STATEFUL = ("omegaconf.", "fairseq.", "fairseq_cli.", "hydra.", "numpy.", "typing.", "enum.")
TYPES = {f"builtins.{name}" for name in ("bool", "bytes", "dict", "float", "int", "list", "object", "str", "tuple")}
TYPES |= {"operator.getitem", "_operator.getitem"}  # configurations name types, such as typing.Optional[int]
LEGACY_PICKLES = 4  # before torch 1.6: magic number, version, machine, and the object itself


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says of its model.

    Attributes:
        path: Where it was read from.
        options: The options of the training, of the model and of the task, by fairseq's names.
        weights: Float32 tensors by fairseq's names.
    """

    path: Path
    options: dict[str, Any]
    weights: dict[str, Tensor]


class StandIn:
    """Takes the place of an object of another library: it keeps the state that it is given, and does nothing."""

    def __new__(cls, *arguments: Any, **named: Any) -> StandIn:
        """An object without state."""
        return object.__new__(cls)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        if arguments:  # a member of an enumeration is made from its value
            self._val = arguments[0]

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.__dict__.update(part)


class PlainDictionary:
    """Makes a dictionary in the place of a `defaultdict`, whose factory could be anything."""

    __module__, __qualname__ = "collections", "defaultdict"

    def __new__(cls, *arguments: Any) -> dict[Any, Any]:  # type: ignore[misc]
        """An empty one."""
        return {}


class EnumerationMember:
    """Makes a stand-in for a member of an enumeration, which some Pythons write as getattr(enumeration, name)."""

    __module__, __qualname__ = "builtins", "getattr"

    def __new__(cls, enumeration: type, name: str) -> StandIn:  # type: ignore[misc]
        """One whose value is its name, as in all enumerations of fairseq."""
        return StandIn(name)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file that `fairseq-train` wrote.

    torch's weights-only loading makes tensors and plain values only; for the few libraries whose objects are known to
    be in checkpoints it makes stand-ins, and a file that holds anything else is refused.
    """
    if not path.is_file():
        raise NotFound(f"There is no checkpoint {path}.")
    try:
        state = _load(path)
    except Exception as error:  # damaged and hostile files fail in many ways
        raise DamagedFile(_why_not_read(path, error)) from error
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise DamagedFile(f"{path} is no fairseq checkpoint: it has no 'model'.")
    try:
        options = _options(state)
    except RecursionError as error:
        raise DamagedFile(f"{path} is damaged: its options contain themselves.") from error
    if not options:
        raise DamagedFile(f"{path} is no fairseq checkpoint: it has neither 'args' nor 'cfg'.")
    # Of our own: the file, which may be mapped into memory, can go or change.
    weights = {
        str(name): tensor.detach().to(torch.float32, copy=True)
        for name, tensor in state["model"].items()
        if isinstance(tensor, Tensor)
    }
    return Checkpoint(path, options, weights)


def _load(path: Path) -> Any:
    zipped = zipfile.is_zipfile(path)
    names = TYPES | {name for name in _names(path, zipped) if name.startswith(STATEFUL)}
    needed: list[Any] = [
        type(name.rpartition(".")[2], (StandIn,), {"__module__": name.rpartition(".")[0]}) for name in names
    ]
    others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()  # what others allow is not ours to use
    try:
        with torch.serialization.safe_globals([*needed, Namespace, PlainDictionary, EnumerationMember]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True if zipped else None)
    finally:
        torch.serialization.add_safe_globals(others)


def _names(path: Path, zipped: bool) -> set[str]:
    """The names of all classes and functions that the file's pickles ask for, found without unpickling."""
    if not zipped:
        with open(path, "rb") as file:
            return {name for _ in range(LEGACY_PICKLES) for name in _names_in_pickle(file)}
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
        return {name for pickle in pickles for name in _names_in_pickle(io.BytesIO(archive.read(pickle)))}


def _names_in_pickle(file: IO[bytes]) -> Iterator[str]:
    for operation, argument, _ in pickletools.genops(file):
        if operation.name == "GLOBAL":
            yield str(argument).replace(" ", ".")


def _why_not_read(path: Path, error: Exception) -> str:
    name = re.search(r"GLOBAL ([\w.]+)", str(error))
    if name:
        return (
            f"{path} asks for '{name[1]}', which no checkpoint of a translation model needs: it was not read, "
            "and nothing of it was run."
        )
    return f"{path} cannot be read as a checkpoint of fairseq: it is damaged, or another kind of file."


def _options(state: dict[str, Any]) -> dict[str, Any]:
    """The options from `args` (until fairseq 0.10) or `cfg`, as one dictionary of plain values."""
    if state.get("args") is not None:
        options = _plain(state["args"])
        return _named(options) if isinstance(options, dict) else {}
    sections = _plain(state.get("cfg"))
    if not isinstance(sections, dict):
        return {}
    model, task = _section(sections, "model"), _section(sections, "task")
    options = dict(model)
    for side in ("encoder", "decoder", "quant_noise"):  # where the options are nested, as the newest fairseq has them
        if isinstance(model.get(side), dict):
            options |= {f"{side}_{name}": value for name, value in model[side].items()}
    options |= {name: value for name, value in task.items() if value is not None}
    options["arch"] = model.get("arch") or model.get("_name")
    options["task"] = task.get("_name") or model.get("task")
    for part in ("tokenizer", "bpe"):
        if sections.get(part) is not None:
            options[part] = sections[part]
    return _named(options) if model else {}


def _section(sections: dict[str, Any], name: str) -> dict[str, Any]:
    section = sections.get(name)
    return section if isinstance(section, dict) else {}


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """The options with tokenizer and BPE given by name, and their own options beside them."""
    options = dict(options)
    for part in ("tokenizer", "bpe"):
        if isinstance(options.get(part), dict):
            inner = options[part]
            options |= {name: value for name, value in inner.items() if name.startswith((*_PREFIXES, "_name"))}
            options[part] = options.pop("_name", None)
    options.pop("_name", None)
    return options


_PREFIXES = ("bpe_", "sentencepiece_", "moses_")


def _plain(value: Any) -> Any:
    """Dictionaries, lists, strings and numbers out of what the file holds."""
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, StandIn):
        state = vars(value)
        return _plain(state.get("_content", state.get("_val")))
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, bool | int | float | str) else None

"""`datastore.json`: what a datastore says of itself."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from knn_seq import __version__
from knn_seq.errors import DamagedFile, KnnSeqError, NotFound
from knn_seq.storage.atomic import read_json, write_json

MANIFEST_NAME = "datastore.json"
FORMAT_VERSION = 1

R = TypeVar("R", bound="Record")


@dataclass
class Record:
    """A part of the manifest.  Fields that this version does not know stay in `extra` and are written back."""

    extra: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @classmethod
    def from_dict(cls: type[R], data: Any) -> R:
        """Read it; a `ValueError` if a field is missing or of another kind than it should be."""
        if not isinstance(data, dict):
            raise ValueError(f"{cls.__name__} is not an object")
        hints, known = get_type_hints(cls), {}
        for entry in fields(cls):
            if entry.name in data and entry.name != "extra":
                known[entry.name] = _read(data[entry.name], hints[entry.name], entry.name)
            elif entry.default is MISSING and entry.default_factory is MISSING:
                raise ValueError(f"'{entry.name}' is missing")
        return cls(**known, extra={name: value for name, value in data.items() if name not in known})

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of it."""
        data = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "extra"}
        plain = {name: value.to_dict() if isinstance(value, Record) else value for name, value in data.items()}
        return plain | self.extra


@dataclass
class ModelInfo(Record):
    """The model whose hidden states the keys are."""

    spec: str  # what the user gave: a hub name, a path, firefox:pt-en
    fingerprint: str  # of the weights
    vocabulary: str  # fingerprint of the vocabulary
    architecture: str = ""
    source_lang: str | None = None
    target_lang: str | None = None
    prompt: str | None = None
    dtype: str = "float32"  # that the keys were computed in
    data: str | None = None  # a fairseq model's folder of dictionaries


@dataclass
class KeyInfo(Record):
    """What the keys are."""

    kind: str  # "ffn_in"
    dimension: int
    dtype: str  # as it is on the disk


@dataclass
class CorpusInfo(Record):
    """The text that the datastore was built from."""

    identity: dict[str, Any]
    description: str = ""


@dataclass
class Counts(Record):
    """How much there is of everything."""

    sentences: int = 0
    tokens: int = 0
    rejected: dict[str, int] = field(default_factory=dict)  # bad lines by reason


@dataclass
class Manifest(Record):
    """A datastore's description: everything that translating with it needs to know."""

    model: ModelInfo
    keys: KeyInfo
    corpus: CorpusInfo
    build: dict[str, Any] = field(default_factory=dict)  # the settings it was built with
    counts: Counts = field(default_factory=Counts)
    indexes: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name: type, recipe, metric ...
    default_index: str | None = None
    subset: dict[str, Any] = field(
        default_factory=dict
    )  # what subset search was prepared with: sentence_search, codes ...
    defaults: dict[str, Any] = field(default_factory=dict)  # k, temperature, weight, retriever, combiner
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)  # the same by what they are for: "subset/fixed"
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name: {"state": "waiting" or "done"}
    created_with: str = __version__
    format_version: int = FORMAT_VERSION

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """The manifest of a datastore's folder."""
        path = folder / MANIFEST_NAME
        try:
            data = read_json(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(
                f"{folder} is not a datastore: it has no {MANIFEST_NAME}; make one with `knn-seq build`."
            ) from error
        except OSError as error:
            raise KnnSeqError(f"{path} cannot be read: {error.strerror}.") from error
        version = data.get("format_version") if isinstance(data, dict) else None
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise KnnSeqError(
                f"{folder} was made by a newer knn-seq ({data.get('created_with')}, format {version}): "
                f"update knn-seq, which is {__version__} here."
            )
        try:
            return cls.from_dict(data)
        except ValueError as error:
            raise DamagedFile(f"{path} is damaged: {error}.") from error

    def save(self, folder: Path) -> None:
        """Replace the manifest of a datastore's folder in one step."""
        write_json(folder / MANIFEST_NAME, self.to_dict())

    def unfinished_step(self) -> str | None:
        """The first step of the build that is not done; None if all are."""
        return next((name for name, step in self.steps.items() if step.get("state") != "done"), None)


def _read(value: Any, hint: Any, name: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_dict(value)
    if not _fits(value, hint):
        raise ValueError(f"'{name}' is {value!r}")
    return value


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is UnionType:
        return any(_fits(value, argument) for argument in arguments)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, arguments[1]) for item in value.values())
    return isinstance(value, hint)

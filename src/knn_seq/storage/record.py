"""Objects of a JSON file as typed records: all of a file is checked when it is read, field by field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

DEEPEST = 64  # objects and lists within each other
LARGEST = 2**63 - 1
SHOWN = 60  # characters of a value in a sentence

_NOUNS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    NoneType: "null",
}

R = TypeVar("R", bound="Record")


@dataclass
class Record:
    """An object of a JSON file.  Fields that this version does not know stay in `extra` and are written back."""

    extra: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @classmethod
    def from_dict(cls: type[R], data: Any, at: str = "") -> R:
        """Read it; a `ValueError` if a field is missing or cannot have its value.

        Args:
            data: What is to be an object.
            at: Where that stands in the file, such as "indexes.default".
        """
        if not isinstance(data, dict):
            raise _fault(data, at, "an object")
        hints: dict[str, Any] = _hints(cls)
        known = {}
        for entry in fields(cls):
            if entry.name in data and entry.name != "extra":
                known[entry.name] = _read(data[entry.name], hints[entry.name], _below(at, entry.name))
            elif entry.default is MISSING and entry.default_factory is MISSING:
                raise ValueError(f"{_named(_below(at, entry.name))} is missing")
        record = cls(**known, extra={name: value for name, value in data.items() if name not in known})
        record.check(at)
        return record

    def check(self, at: str) -> None:
        """Raise a `ValueError` if fields have values that they cannot have, or that do not go together."""
        return  # most may have any of their type

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of it."""
        data = {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self) if entry.name != "extra"}
        return data | self.extra


def _hints(kind: Any) -> dict[str, Any]:
    """Those of a class; to read them takes longer than to read a manifest by them."""
    if kind not in _known_hints:
        _known_hints[kind] = get_type_hints(kind)
    return _known_hints[kind]


_known_hints: dict[Any, dict[str, Any]] = {}


def require_plain(value: Any, at: str = "", depth: int = 0) -> None:
    """Raise a `ValueError` that names what Python reads from JSON, but could not write, print or compute with.

    Args:
        value: What a JSON file holds.
        at: Where it stands in the file.
        depth: In how many objects and lists.
    """
    if depth > DEEPEST:
        raise ValueError(f"{_named(at)} is nested too deeply")
    if isinstance(value, float) and not math.isfinite(value):
        raise _fault(value, at, "a finite number")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise _fault(value, at, "a number of 64 bits")
    if isinstance(value, str) and not _is_unicode(value):
        raise _fault(value, at, "a text in Unicode")
    if isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(name, str) and not _is_unicode(name):
                raise _fault(name, f"a name in {at}" if at else "a name", "a text in Unicode")
            require_plain(item, _below(at, name), depth + 1)


def _read(value: Any, hint: Any, at: str) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    for kind in kinds:
        if _accepts(kind, value):
            return _converted(value, kind, at)
    raise _fault(value, at, " or ".join(map(_noun, kinds)))


def _accepts(kind: Any, value: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is int:
        return type(value) is int and value >= 0
    if kind is float:
        return type(value) in (int, float)
    return isinstance(value, kind if kind in _NOUNS else dict)


def _converted(value: Any, kind: Any, at: str) -> Any:
    if kind is float:
        return float(value)
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_dict(value, at)
    if is_typeddict(kind):
        hints = _hints(kind)
        return {name: _read(item, hints.get(name, Any), _below(at, name)) for name, item in value.items()}
    if get_origin(kind) in (dict, Mapping):
        return {name: _read(item, get_args(kind)[1], _below(at, name)) for name, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def _fault(value: Any, at: str, expected: str) -> ValueError:
    return ValueError(f"{_named(at)} is {shown(value)}, not {expected}")


def _named(at: str) -> str:
    return _short(repr(at)) if at else "it"


def _below(at: str, name: str | int) -> str:
    return f"{at}.{name}" if at else str(name)


def _noun(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return _NOUNS.get(kind, "an object")


def shown(value: Any) -> str:
    """A value in a sentence."""
    if isinstance(value, dict):
        return "an object"
    return _short(repr(value) if isinstance(value, str) else json.dumps(value))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)

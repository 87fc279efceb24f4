"""Names and options for the parts that are made to be swapped, ours and those of other installed packages."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from knn_seq.errors import InvalidSetting, KnnSeqError

T = TypeVar("T")
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


class Registry(Generic[T]):
    """Classes of one kind by name.

    A part of ours is a file in its package, named after it, whose class carries the `register` decorator; nothing else
    has to be edited.  A part of another distribution is found through the entry-point group `knn_seq.<package>`.

    Args:
        kind: The abstract class of the parts.
        package: The sub-package that holds ours ("index"), also the last word of the entry-point group.
        noun: What one of them is called in a sentence ("index").
    """

    def __init__(self, kind: type[T], package: str, noun: str) -> None:
        self.kind, self.package, self.noun = kind, package, noun
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator that makes a class known under `name`."""

        def add(cls: type[T]) -> type[T]:
            self._add(name, cls)
            return cls

        return add

    def get(self, name: str) -> type[T]:
        """The class of that name, or an `InvalidSetting` that lists the names there are."""
        if name not in self._classes:
            if name in self._modules():
                import_module(f"knn_seq.{self.package}.{name}")
            for point in entry_points(group=self.group, name=name):
                self._add(name, point.load())
        if name not in self._classes:
            raise InvalidSetting(f"There is no {self.noun} '{name}': choose from {', '.join(self.names())}.")
        return self._classes[name]

    def names(self) -> list[str]:
        """All names that `get` accepts."""
        for module in self._modules():
            import_module(f"knn_seq.{self.package}.{module}")
        installed = {point.name for point in entry_points(group=self.group)}
        return sorted(installed | set(self._classes))

    def name_of(self, cls: type) -> str:
        """The name of a class that is registered, or else what Python calls it."""
        return next((name for name, known in self._classes.items() if known is cls), cls.__name__)

    @property
    def group(self) -> str:
        """The entry-point group of parts from other distributions."""
        return f"knn_seq.{self.package}"

    def _add(self, name: str, cls: Any) -> None:
        if not (isinstance(cls, type) and issubclass(cls, self.kind)):
            raise KnnSeqError(f"The {self.noun} '{name}' has to be a subclass of {self.kind.__name__}, not {cls!r}.")
        known = self._classes.setdefault(name, cls)
        # A module that is imported a second time defines the same class again.
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise KnnSeqError(
                f"Two classes are called {self.noun} '{name}', {known.__module__}.{known.__qualname__} and "
                f"{cls.__module__}.{cls.__qualname__}: rename one of them, or uninstall its package."
            )
        self._classes[name] = cls

    def _modules(self) -> list[str]:
        return [module.name for module in pkgutil.iter_modules(import_module(f"knn_seq.{self.package}").__path__)]


@dataclass(frozen=True)
class Option:
    """An option that a part declares for itself: `--index-option name=value`, or an entry of a mapping in Python."""

    default: Any
    help: str
    kind: type = int
    minimum: float | None = None
    when_built: bool = False  # it is decided when the part is made, and cannot change from search to search


def check_options(
    owner: str, declared: Mapping[str, Option], given: Mapping[str, Any], per_search: bool = False
) -> dict[str, Any]:
    """The given options as values of the declared kinds; an `InvalidSetting` names one that is not declared or wrong.

    Args:
        owner: What has the options, to be read at the beginning of a sentence: "The index 'faiss'".
        declared: The options there are.
        given: Values, or their text as it stands on a command line.
        per_search: The options are for one search: those that are decided when the part is made are refused.
    """
    checked = {}
    for name, value in given.items():
        option = declared.get(name)
        if option is None:
            known = ", ".join(declared) or "none"
            raise InvalidSetting(f"{owner} has no option '{name}': it has {known}.")
        if per_search and option.when_built:
            raise InvalidSetting(f"{owner} takes the option '{name}' only when it is built.")
        checked[name] = _checked(owner, name, option, value)
    return checked


def parse_pairs(text: str) -> dict[str, str]:
    """Options as they stand on a command line: "nprobe=16,probe_ratio=1.5"."""
    options = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise InvalidSetting(f"An option is written as name=value, not '{part}'.")
        options[name.strip().replace("-", "_")] = value.strip()
    return options


def _checked(owner: str, name: str, option: Option, value: Any) -> Any:
    if value is None and option.default is None:
        return None
    kind: Any = option.kind
    try:
        if isinstance(value, str) and kind is bool:
            value = {"true": True, "false": False}[value.lower()]
        elif isinstance(value, str) or (kind is float and type(value) is int):
            value = kind(value)
        if type(value) is not kind or (option.minimum is not None and not value >= option.minimum):
            raise ValueError
    except (ValueError, KeyError):
        least = "" if option.minimum is None else f" from {option.minimum:g} on"
        raise InvalidSetting(
            f"{owner} takes as its option '{name}' {_KINDS.get(kind, kind.__name__)}{least}, not {value}."
        ) from None
    return value

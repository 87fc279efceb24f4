"""Names for the parts that are made to be swapped, ours and those of other installed packages."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from knn_seq.errors import UserError

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by name.

    A part of ours is a file in its room, named after it, whose class carries the `register` decorator; nothing
    else has to be edited.  A part of another package is found through the entry-point group `knn_seq.<room>`.

    Args:
        room: The sub-package that holds our parts ("index"), also the last word of the entry-point group.
    """

    def __init__(self, room: str) -> None:
        self.room = room
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator that makes a class known under `name`."""

        def remember(cls: type[T]) -> type[T]:
            self._classes[name] = cls
            return cls

        return remember

    def get(self, name: str) -> type[T]:
        """The class of that name, or a `UserError` that lists the names there are."""
        if name not in self._classes and name in self._modules():
            import_module(f"knn_seq.{self.room}.{name}")
        if name not in self._classes:
            for point in entry_points(group=f"knn_seq.{self.room}", name=name):
                self._classes[name] = point.load()
        if name not in self._classes:
            raise UserError(f"There is no {self.room} '{name}': choose from {', '.join(self.names())}.")
        return self._classes[name]

    def names(self) -> list[str]:
        """All names that `get` accepts."""
        for module in self._modules():
            import_module(f"knn_seq.{self.room}.{module}")
        installed = {point.name for point in entry_points(group=f"knn_seq.{self.room}")}
        return sorted(installed | set(self._classes))

    def _modules(self) -> list[str]:
        return [module.name for module in pkgutil.iter_modules(import_module(f"knn_seq.{self.room}").__path__)]

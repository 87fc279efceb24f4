"""Figures that are kept as soon as they are there: a run that was killed resumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from knn_seq import KnnSeqError
from knn_seq.storage.atomic import read_json, write_json


class Kept:
    """Figures in a JSON file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.figures: dict[str, Any] = read_json(path) if path.exists() else {}

    def get(self, names: Sequence[str], make: Callable[[], Any]) -> Any:
        """The figure under these names, made if it is not there yet."""
        *outer, last = names
        if last not in self._group(outer):
            self.put(names, make())
        return self._group(outer)[last]

    def put(self, names: Sequence[str], figure: Any) -> None:
        """Keep a figure, in the place of one that may be there."""
        *outer, last = names
        self._group(outer)[last] = figure
        write_json(self.path, self.figures)

    def add(self, names: Sequence[str], number: float) -> None:
        """Add to a figure that starts at 0."""
        *outer, last = names
        self.put(names, self._group(outer).get(last, 0) + number)

    def require_same(self, names: Sequence[str], value: Any) -> None:
        """Raise a `KnnSeqError` if the figures that are there were measured in another way."""
        if self.get(names, lambda: value) != value:
            raise KnnSeqError(
                f"{self.path} holds figures of another commit, another text or other amounts: choose another --folder."
            )

    @contextmanager
    def timing(self, step: str) -> Iterator[None]:
        """Add the seconds that passed meanwhile, and the processor's, to those of a step."""
        start, begun = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.add(("seconds", step), time.perf_counter() - start)
            self.add(("cpu_seconds", step), time.process_time() - begun)

    def _group(self, names: Sequence[str]) -> dict[str, Any]:
        group = self.figures
        for name in names:
            group = group.setdefault(name, {})
        return group

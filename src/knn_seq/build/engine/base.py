from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType

from knn_seq.models import Model
from knn_seq.registry import Registry
from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings

LOCK_TIMEOUT = 30.0  # seconds that a worker waits for one that is dying to release the piece it worked on


class Worker(ABC):
    """What a piece of work finds where it is done."""

    @property
    @abstractmethod
    def model(self) -> Model:
        """The model that computes keys, loaded when it is first asked for."""

    @abstractmethod
    def report(self, done: int) -> None:
        """Say how much of the piece is done by now, of its `size`."""


class Work(ABC):
    """A piece of work that does not depend on others.  It travels to other processes, so it is small and picklable.

    It may be killed and done again, anywhere: what it finishes it writes to the disk, and what it finds there it does
    not do again.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """How much work it is."""

    @abstractmethod
    def done(self) -> int:
        """How much of it lies on the disk already."""

    @abstractmethod
    def run(self, worker: Worker) -> None:
        """Do it, or what is left of it."""


class Engine(ABC):
    """Does pieces of work, in any order and as many at a time as it likes.

    Args:
        settings: How many workers, and where.
        model: The model that the build was given; None: the work needs none.
    """

    def __init__(self, settings: BuildSettings, model: Model | None = None) -> None:
        self.settings, self.model = settings, model

    @property
    def tokenizer_processes(self) -> int:
        """How many processes of this machine tokenize text."""
        return os.cpu_count() or 1

    def start(self, load_model: bool = False) -> None:  # noqa: B027
        """Start what the engine needs, so that what is missing shows before hours of other work.

        Args:
            load_model: Workers will need the model: they may load it meanwhile.
        """

    @abstractmethod
    def run(self, pieces: Sequence[Work], progress: Progress) -> None:
        """Do all pieces.

        Args:
            pieces: The work.
            progress: Counts what is done; it has counted already what the pieces found `done`.
        """

    def close(self) -> None:  # noqa: B027
        """Stop what `start` and `run` have started."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PieceProgress:
    """How much of each piece is done, shown as one progress.

    Args:
        pieces: The work.
        progress: Has counted already what the pieces found `done`.
    """

    def __init__(self, pieces: Sequence[Work], progress: Progress) -> None:
        self._done, self._progress = [piece.done() for piece in pieces], progress

    def set(self, number: int, done: int) -> None:
        """Say how much of a piece is done by now; less than before if a worker died with it."""
        if done != self._done[number]:
            self._progress.update(done - self._done[number])
            self._done[number] = done


ENGINES: Registry[Engine] = Registry(Engine, "build.engine", "engine")  # type: ignore[type-abstract]


def open_engine(settings: BuildSettings, model: Model | None = None) -> Engine:
    """The engine that the settings name; nothing is started yet."""
    return ENGINES.get(settings.engine)(settings, model)

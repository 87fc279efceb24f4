"""A Ray of this machine alone, which is started while this process works itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

from knn_seq.build.engine.base import PieceProgress
from knn_seq.build.engine.local import LocalWorker
from knn_seq.models import Model


class HandOver(Exception):
    """Ends a piece of work here: workers are there to go on with it."""


class Home:
    """Starts and stops something in a thread of its own: processes of Ray end with the thread that started them.

    Args:
        start: Takes seconds.
        stop: Undoes as much as was started; takes seconds.
    """

    def __init__(self, start: Callable[[], None], stop: Callable[[], None]) -> None:
        self._started, self._over = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(start, stop), name="ray", daemon=True)
        self._thread.start()

    def _run(self, start: Callable[[], None], stop: Callable[[], None]) -> None:
        try:
            start()
        except BaseException as error:
            self._error = error
        self._started.set()
        self._over.wait()
        stop()

    def started(self, seconds: float | None = None) -> bool:
        """Whether it is there by now, or after so many seconds; raises what went wrong.

        Args:
            seconds: None: however long it takes.
        """
        started = self._started.wait(seconds)
        if started and self._error is not None:
            raise self._error
        return started

    def leave(self) -> None:
        """Begin to stop."""
        self._over.set()

    def end(self) -> None:
        """Stop, and wait until it has."""
        self.leave()
        self._thread.join()


class Substitute(LocalWorker):
    """This process, which has the model already, until the others are there.

    Args:
        model: The model.
        tally: Counts what it does.
        number: The piece's number.
        enough: Whether it is to stop.
    """

    def __init__(self, model: Model, tally: PieceProgress, number: int, enough: Callable[[], bool]) -> None:
        super().__init__(model, tally, number)
        self._enough = enough

    def report(self, done: int) -> None:
        """See `Worker.report`; raises `HandOver` when it is enough."""
        super().report(done)
        if self._enough():
            raise HandOver

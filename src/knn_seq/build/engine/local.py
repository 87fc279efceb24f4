from __future__ import annotations

from collections.abc import Sequence

from knn_seq.build.engine.base import ENGINES, Engine, PieceProgress, Work, Worker
from knn_seq.errors import KnnSeqError
from knn_seq.models import Model
from knn_seq.runtime.progress import Progress


@ENGINES.register("local")
class LocalEngine(Engine):
    """One worker: this process, with the model that is loaded."""

    @property
    def tokenizer_processes(self) -> int:
        """As many as the user wants."""
        return self.settings.workers or super().tokenizer_processes

    def run(self, pieces: Sequence[Work], progress: Progress) -> None:
        """See `Engine.run`."""
        of_pieces = PieceProgress(pieces, progress)
        for number, piece in enumerate(pieces):
            piece.run(LocalWorker(self.model, of_pieces, number))


class LocalWorker(Worker):
    """This process, at work on one piece.

    Args:
        model: The model, if there is one.
        progress: Counts what is done.
        number: The piece's number.
    """

    def __init__(self, model: Model | None, progress: PieceProgress, number: int) -> None:
        self._model, self._progress, self._number = model, progress, number

    @property
    def model(self) -> Model:
        """See `Worker.model`."""
        if self._model is None:
            raise KnnSeqError("This work needs a model, and none is loaded.")
        return self._model

    def report(self, done: int) -> None:
        """See `Worker.report`."""
        self._progress.set(self._number, done)

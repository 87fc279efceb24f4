"""What runs in each process of the Ray engine."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch

from knn_seq.build.engine.base import Work, Worker
from knn_seq.errors import KnnSeqError, ModelMismatch
from knn_seq.models import Fingerprint, Model, load_model
from knn_seq.models.base import absolute_name
from knn_seq.settings import ModelSettings


class PortableModel(NamedTuple):
    """How to load a model in another process, perhaps on another node."""

    settings: ModelSettings
    fingerprint: Fingerprint

    @classmethod
    def of(cls, model: Model, on_gpu: bool) -> PortableModel:
        """Of a loaded model.

        Args:
            model: The model.
            on_gpu: The other process has GPUs of its own, which it counts from 0.
        """
        settings = model.settings
        data = None if settings.data is None else os.path.abspath(settings.data)
        device = "cuda" if on_gpu and (settings.device or "").startswith("cuda") else settings.device
        portable = replace(settings, name=absolute_name(settings.name), data=data, device=device)
        return cls(portable, model.fingerprint)

    def load(self) -> Model:
        """The model, or an error if it is not the same one here."""
        model = load_model(self.settings)
        if model.fingerprint != self.fingerprint:
            raise ModelMismatch(
                f"On the node {socket.gethostname()} the model {self.settings.name} is another one than where the "
                "build was started: give a path that all nodes share."
            )
        return model


class RayWorker(Worker):
    """One of the processes.

    Args:
        model: The model to load when it is needed; None: the work needs none.
        threads: That it may compute with.
    """

    def __init__(self, model: PortableModel | None, threads: int) -> None:
        self._portable, self._threads = model, threads

    def start(self, load_model: bool) -> None:
        """Return as soon as the process is there, with the model if it is to be loaded."""
        if load_model:
            _ = self.model

    @cached_property
    def model(self) -> Model:
        """See `Worker.model`."""
        if self._portable is None:
            raise KnnSeqError("This work needs a model, and the workers were given none.")
        return self._portable.load()

    def report(self, done: int) -> None:
        """Say nothing: the engine sees on the disk how far the work is."""

    def run(self, piece: Work) -> None:
        """Do a piece of work."""
        if torch.get_num_threads() != self._threads:  # else not: MKL would use all threads for the smallest product
            torch.set_num_threads(self._threads)
        piece.run(self)

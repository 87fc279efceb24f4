"""An index elsewhere that does not answer, and what a run does without it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from knn_seq.errors import IndexUnavailable
from knn_seq.settings import SearchSettings

ASK_AGAIN = 30.0  # seconds that an index out of reach is left alone

T = TypeVar("T")


class Outage:
    """What a run remembers of an index that is out of reach: it is told once, and the index not asked at every step."""

    def __init__(self) -> None:
        self.asked_again = -math.inf  # when
        self.told = False

    def ask(self, question: Callable[[], T], settings: SearchSettings) -> T | None:
        """What an index answers; None while it is out of reach and the settings let the model go on alone."""
        if settings.on_index_failure != "base":
            return question()
        if time.monotonic() < self.asked_again:
            return None
        try:
            return question()
        except IndexUnavailable as error:
            self.asked_again = time.monotonic() + ASK_AGAIN
            if not self.told:
                name = _name(settings)
                print(f"knn-seq: going on without neighbours, for {name} is out of reach: {error}", file=sys.stderr)
            self.told = True
            return None

    def over(self, settings: SearchSettings) -> None:
        """A search has found something."""
        if self.told:
            print(f"knn-seq: {_name(settings)} answers again; going on with neighbours.", file=sys.stderr)
        self.told = False


def _name(settings: SearchSettings) -> str:
    return f"the index '{settings.index}'" if settings.index else "the index"

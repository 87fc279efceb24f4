"""An index on a server that does not answer, and what decoding does without it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TypeVar

from knn_seq.errors import IndexUnavailable
from knn_seq.settings import SearchSettings

RETRY_SECONDS = 30.0  # for which an index that does not answer is not asked

log = logging.getLogger(__name__)
T = TypeVar("T")


class Outage:
    """Remembers that an index does not answer: the user is told once, and the index not asked at every step."""

    def __init__(self) -> None:
        self.retry_at = -math.inf
        self.told = False

    def ask(self, question: Callable[[], T], settings: SearchSettings) -> T | None:
        """What an index answers; None while it does not and the settings let the model decode alone."""
        if settings.on_index_failure != "base":
            return question()
        if time.monotonic() < self.retry_at:
            return None
        try:
            return question()
        except IndexUnavailable as error:
            self.retry_at = time.monotonic() + RETRY_SECONDS
            if not self.told:
                log.warning("Continuing without neighbours, for %s does not answer: %s", _name(settings), error)
            self.told = True
            return None

    def over(self, settings: SearchSettings) -> None:
        """A search has found something."""
        if self.told:
            log.warning("%s answers again; continuing with neighbours.", _name(settings).capitalize())
        self.told = False


def _name(settings: SearchSettings) -> str:
    return f"the index '{settings.index}'" if settings.index else "the index"

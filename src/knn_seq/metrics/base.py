from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from knn_seq.registry import Registry


class Score(NamedTuple):
    """A corpus score, and the signature that says how it was computed."""

    value: float
    signature: str
    p_value: float | None = None  # that it differs from the first system's by chance; None: it is the first


class Metric(ABC):
    """Scores test sets; the greater, the better."""

    name: ClassVar[str]  # as people write it: BLEU, chrF, COMET

    def require(self) -> None:
        """Raise a `KnnSeqError` if something that the metric needs is missing; most need nothing."""
        return None

    @abstractmethod
    def scores(
        self, systems: Mapping[str, Sequence[str]], references: Sequence[str], sources: Sequence[str]
    ) -> dict[str, Score]:
        """The score of each system, with its paired bootstrap significance against the first.

        Args:
            systems: The translations of each system.
            references: The reference translations.
            sources: The sentences that were translated.
        """


METRICS: Registry[Metric] = Registry(Metric, "metrics", "metric")  # type: ignore[type-abstract]

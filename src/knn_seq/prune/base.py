from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.registry import Option, Registry, check_options
from knn_seq.storage import DatastoreFolder

BLOCK = 1 << 16  # entries that are looked at together


@dataclass(frozen=True)
class Evidence:
    """What is known of every entry of a datastore, row i of entry i, as memory maps.

    What the method did not ask for is empty: its arrays have no columns.
    """

    store: DatastoreFolder
    log_probs: NDArray[np.float32]  # (entries, 2): log p_MT of the entry's value, and of the model's choice there
    neighbours: NDArray[np.int64]  # (entries, k): the entries nearest to it but for itself, nearest first; -1 is none
    distances: NDArray[np.float32]  # (entries, k): theirs

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.neighbours)

    def predicted(self) -> NDArray[np.bool_]:
        """Which entries' values the model alone holds most likely, (entries,)."""
        return np.asarray(self.log_probs[:, 0] >= self.log_probs[:, 1])

    def blocks(self) -> list[slice]:
        """All entries, some at a time."""
        return [slice(start, min(start + BLOCK, len(self))) for start in range(0, len(self), BLOCK)]


class Selection(NamedTuple):
    """The entries that stay."""

    kept: NDArray[np.bool_]  # (entries,)
    counts: NDArray[np.int64] | None = None  # (entries,): how many each kept entry stands for; None: as before


class PruningMethod(ABC):
    """Decides which entries of a datastore stay.

    Args:
        options: Values of those that `options` declares.
    """

    options: ClassVar[Mapping[str, Option]] = {}
    reads_model: ClassVar[bool] = True  # whether it looks at `Evidence.log_probs`

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        defaults = {name: option.default for name, option in self.options.items()}
        owner = f"The pruning method '{PRUNING_METHODS.name_of(type(self))}'"
        self.option_values: dict[str, Any] = {**defaults, **check_options(owner, self.options, options or {})}

    @property
    def neighbours(self) -> int:
        """How many neighbours of each entry it looks at."""
        return int(self.option_values.get("neighbours", 0))

    @abstractmethod
    def select(self, evidence: Evidence, keep: int) -> Selection:
        """The entries that stay, exactly `keep` of them, the same every time."""


def highest(scores: NDArray[Any], keep: int) -> NDArray[np.bool_]:
    """The entries with the highest scores, (entries,) bool, exactly `keep` of them; of equal ones the first stay."""
    chosen = np.zeros(len(scores), np.bool_)
    if keep <= 0:
        return chosen
    least = np.partition(scores, len(scores) - keep)[len(scores) - keep]
    chosen[:] = scores > least
    equal = np.flatnonzero(scores == least)
    chosen[equal[: keep - int(chosen.sum())]] = True
    return chosen


PRUNING_METHODS: Registry[PruningMethod] = Registry(PruningMethod, "prune", "pruning method")  # type: ignore[type-abstract]

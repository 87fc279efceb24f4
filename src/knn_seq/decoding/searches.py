from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Searches:
    """How many rows wanted neighbours, and how many of them were searched."""

    wanted: int = 0
    made: int = 0

    @property
    def saved(self) -> float:
        """The share that was not searched."""
        return 1 - self.made / self.wanted if self.wanted else 0.0

"""What tuning found, as data, as a table, and where a datastore keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.combine import has_own_temperature
from knn_seq.decoding import settings_name, store_settings
from knn_seq.likelihood import Grid
from knn_seq.settings import SearchSettings, with_value
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.atomic import read_json, write_json

TUNING_NAME = "tuning.json"


class Row(NamedTuple):
    """Settings that were decoded with."""

    settings: SearchSettings
    log_likelihood: float  # of the references, a token
    score: float


def rank(row: Row) -> tuple[float, float]:
    """What decides which settings are better: the score, and among equal ones the likelihood."""
    return row.score, row.log_likelihood


@dataclass(frozen=True)
class Surface:
    """The log-likelihood a token at every point of a grid."""

    grid: Grid
    size: int | None  # the subset size it holds for; None: the retriever's own default
    values: NDArray[np.float64]  # (k, temperatures, weights)


@dataclass(frozen=True)
class Tuning:
    """What tuning found."""

    metric: str
    tokens: int  # of the dev set
    surfaces: list[Surface]  # one for each subset size
    base: Row  # the model alone
    rows: list[Row]  # what was decoded with
    best: Row

    @property
    def chosen(self) -> dict[str, Any]:
        """The chosen settings, those that have a value."""
        return with_value(self.best.settings)

    def table(self) -> str:
        """For people."""
        columns = (
            ["k", "weight"] if has_own_temperature(self.best.settings.combiner) else ["k", "temperature", "weight"]
        )
        columns += [name for name in ("subset_size",) if any(getattr(row.settings, name) for row in self.rows)]
        widths = [max(len(name), 6) for name in columns]
        widths[0] += max(len("the model alone") - sum(widths) - len(widths) + 1, 0)
        title = " ".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))
        lines = [f"{title} {'log-likelihood':>15} {self.metric:>7}"]
        for row in (self.base, *self.rows):
            cells = [getattr(row.settings, name) for name in columns]
            texts = ["" if cell is None else f"{cell:g}" for cell in cells]
            named = " ".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
            named = f"{'the model alone':<{len(title)}}" if row is self.base else named
            lines.append(
                f"{named} {row.log_likelihood:>15.4f} {row.score:>7.2f}{'  <- chosen' if row is self.best else ''}"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the surface of the chosen subset size."""
        settings = self.best.settings
        surface = next((each for each in self.surfaces if each.size == settings.subset_size), self.surfaces[0])
        return {
            "retriever": settings.retriever,
            "combiner": settings.combiner,
            "subset_size": settings.subset_size,
            "metric": self.metric,
            "tokens": self.tokens,
            "base_log_likelihood": self.base.log_likelihood,
            "base_score": self.base.score,
            "surface": {
                "k": list(surface.grid.k),
                "temperature": list(surface.grid.temperatures),
                "weight": list(surface.grid.weights),
                "log_likelihood": surface.values.round(5).tolist(),
            },
            "confirmed": [
                {**with_value(row.settings), "log_likelihood": row.log_likelihood, "score": row.score}
                for row in self.rows
            ],
            "chosen": self.chosen,
        }

    def keep(self, store: DatastoreFolder, dev: str, as_default: bool) -> None:
        """Store the chosen settings in the datastore, and how they were found beside them.

        Args:
            store: The datastore.
            dev: What the dev set was.
            as_default: Make them the datastore's defaults, too.
        """
        path = store.path / TUNING_NAME
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        store_settings(store, self.best.settings, as_default)
        known = read_json(path) if path.exists() else {}
        write_json(path, known | {settings_name(self.best.settings): self.to_dict() | {"dev": dev, "date": date}})


def best_tuning(tunings: Sequence[Tuning]) -> Tuning:
    """The one whose chosen settings are best."""
    return max(tunings, key=lambda tuning: rank(tuning.best))


def verdict(tunings: Sequence[Tuning]) -> str:
    """Which of several combiners is best, and by how much, in one sentence."""
    first = best_tuning(tunings)
    second = best_tuning([tuning for tuning in tunings if tuning is not first])
    winner, other = first.best.settings.combiner, second.best.settings.combiner
    ahead = first.best.score - second.best.score
    how_much = f"{ahead:.2f} more than" if ahead else "no more, but at a higher likelihood, than"
    return f"{winner} wins: {first.best.score:.2f} {first.metric}, {how_much} {other} ({second.best.score:.2f})."

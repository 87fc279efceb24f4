"""Systems on the same test set: what a comparison is, as data, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from knn_seq.datastore import Datastore
from knn_seq.decoding import Translation
from knn_seq.evaluate.stored_targets import StoredTargets
from knn_seq.metrics import Score
from knn_seq.translator import Translator

PARTS = ("model", "search", "combination")  # of the time that a system takes
HEADINGS = ("model", "search", "combine")  # of these, in a table that must fit on a screen


@dataclass(frozen=True)
class System:
    """A way to translate, and how well and fast it does."""

    name: str
    translator: Translator
    settings: dict[str, Any]
    translations: list[Translation]
    scores: dict[str, Score]  # by the metric's name: BLEU, chrF ...
    seconds: float
    speeds: list[float]  # output tokens a second, in each piece of the test set
    shares: dict[str, float]  # of the time that went to model, search and combination; they sum to 1
    # See `changed_tokens` in explain; none for the model alone.
    changed_tokens: list[list[bool]] = field(default_factory=list)
    stored: StoredTargets | None = None  # that it gives back; None: not measured
    repetitions: list[bool] = field(default_factory=list)  # which outputs repeat what the first system's do not

    @property
    def tokens(self) -> int:
        """How many tokens it wrote."""
        return sum(len(translation.tokens) for translation in self.translations)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second: the median of its speeds."""
        return median(self.speeds)

    @property
    def speed_range(self) -> str:
        """The lowest and the highest of its speeds, for people."""
        return f"{min(self.speeds):,.0f}–{max(self.speeds):,.0f}"

    @property
    def searches(self) -> bool:
        """Whether it asks for neighbours at all."""
        return self.translator.settings(self.settings)[0].weight > 0

    @property
    def searched(self) -> dict[str, str]:
        """What its neighbours are from; nothing for the model alone."""
        if not self.searches:
            return {}
        store = self.translator.store
        return {"datastore": str(store.path)} if isinstance(store, Datastore) else {"translation_memory": store.name}

    @property
    def changed(self) -> float:
        """The share of its tokens that the neighbours lifted over the model's choice."""
        return sum(map(sum, self.changed_tokens)) / max(self.tokens, 1)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; scores stand under their metrics' names in lower case."""
        p_values = {name: score.p_value for name, score in self.scores.items() if score.p_value is not None}
        return {
            "name": self.name,
            **{name.lower(): round(score.value, 4) for name, score in self.scores.items()},
            "p_values": {name.lower(): round(p_value, 6) for name, p_value in p_values.items()},
            "tokens_per_second": round(self.tokens_per_second, 1),
            "speeds": [round(speed, 1) for speed in self.speeds],
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "shares": {part: round(share, 4) for part, share in self.shares.items()},
            "changed": round(self.changed, 4),
            "stored": None if self.stored is None else asdict(self.stored),
            "repeated": sum(self.repetitions),
            **self.searched,
            "settings": self.settings,
            "translations": [translation.text for translation in self.translations],
        }


@dataclass(frozen=True)
class Comparison:
    """Systems on the same test set; the first is what the others are compared with."""

    systems: list[System]
    sources: Sequence[str]
    references: Sequence[str]

    @property
    def signatures(self) -> dict[str, str]:
        """How each score was computed, by the metric's name."""
        return {metric: score.signature for system in self.systems for metric, score in system.scores.items()}

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the figures, and the texts to score them anew; not the tokens."""
        return {
            "systems": [system.to_dict() for system in self.systems],
            "sentences": len(self.sources),
            "signatures": self.signatures,
            "sources": list(self.sources),
            "references": list(self.references),
        }

    def table(self) -> str:
        """For people: a line for each system, and the signatures of the scores."""
        rows = [["system", *self._metric_headings(), "tokens/s", "range", "x base", *HEADINGS, "changed"]]
        measured = any(system.stored is not None for system in self.systems)
        rows[0] += [*(["stored"] if measured else []), "repeated"]
        for system in self.systems:
            rows.append(
                [
                    system.name,
                    *self._metric_cells(system),
                    f"{system.tokens_per_second:,.0f}",
                    system.speed_range,
                    f"{system.tokens_per_second / self.systems[0].tokens_per_second:.2f}",
                    *(f"{system.shares[part]:.0%}" for part in PARTS),
                    f"{system.changed:.1%}",
                    *([str(system.stored or "")] if measured else []),
                    str(sum(system.repetitions)),
                ]
            )
        return "\n".join([*_aligned(rows), *(f"{name}: {text}" for name, text in self.signatures.items())])

    def _metric_headings(self) -> list[str]:
        return [heading for metric in self.signatures for heading in (metric, "p")]

    def _metric_cells(self, system: System) -> list[str]:
        cells = []
        for metric in self.signatures:
            # Some metrics give percentages, others, such as COMET, numbers around 1.
            digits = 2 if max(abs(each.scores[metric].value) for each in self.systems) > 2 else 4
            score = system.scores[metric]
            cells += [f"{score.value:.{digits}f}", "" if score.p_value is None else shown_p_value(score.p_value)]
        return cells


def shown_p_value(p_value: float) -> str:
    """A p-value as people write it."""
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _aligned(rows: list[list[str]]) -> list[str]:
    """Columns two spaces apart, the first flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]

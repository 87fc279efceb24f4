from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from knn_seq.runtime.wording import count


@dataclass(frozen=True)
class SegmentReport:
    """What became of a segment.

    Attributes:
        key: What people find it by in the file: an id, a line.
        source: Its text.
        target: The translation.
        origin: "exact", "stored", "neighbours", "model" or "unchanged".
        share: Of the tokens, those that neighbours decided; None if nobody asked, or no model wrote them.
        repaired: The model's first output lacked a placeholder or a tag.
    """

    key: str
    source: str
    target: str
    origin: str
    share: float | None = None
    repaired: bool = False

    def describe(self) -> str:
        """The origin in words for people."""
        if self.origin == "neighbours":
            return f"neighbours {max(self.share or 0.0, 0.01):.0%}".replace("%", " %")
        words = {"exact": "exact match", "stored": "exact match but for tags", "model": "model alone"}
        return words.get(self.origin, self.origin)


@dataclass(frozen=True)
class FileReport:
    """What became of a file.

    Attributes:
        path: The file.
        output: What was written; None: nothing on the disk.
        format: The document format's name.
        seconds: That it took.
        kept: Segments that had a translation already, which stayed.
        terms: Terms of a glossary that were applied.
        cut: Sentences that were longer than the model can read.
        segments: Those that were translated.
    """

    path: str
    output: str | None
    format: str
    seconds: float
    kept: int = 0
    terms: int = 0
    cut: int = 0
    segments: list[SegmentReport] = field(default_factory=list)

    @property
    def words(self) -> int:
        """Words of the sources."""
        return sum(len(segment.source.split()) for segment in self.segments)

    @property
    def exact_matches(self) -> int:
        """Segments that the store has as they are."""
        return self._with_origin("exact")

    @property
    def stored(self) -> int:
        """Segments that the store has without their tags, which were placed by where the model looks."""
        return self._with_origin("stored")

    @property
    def by_neighbours(self) -> int:
        """Segments in which neighbours decided a token."""
        return self._with_origin("neighbours")

    @property
    def repaired(self) -> int:
        """Segments whose first output lacked a placeholder or a tag."""
        return sum(segment.repaired for segment in self.segments)

    @property
    def unchanged(self) -> int:
        """Segments that stayed as they were, since no output had their placeholders."""
        return self._with_origin("unchanged")

    def _with_origin(self, origin: str) -> int:
        return sum(segment.origin == origin for segment in self.segments)

    def describe(self) -> str:
        """The report in a sentence."""
        parts = [
            f"{count(len(self.segments), 'segment')}, {count(self.words, 'word')}",
            f"{count(self.exact_matches, 'exact match').replace('matchs', 'matches')}",
            *([f"{self.stored:,} exact but for tags"] if self.stored else []),
            f"{self.by_neighbours:,} with neighbours",
            f"{count(self.repaired, 'segment')} with placeholders repaired",
            f"{count(self.terms, 'term')} applied",
        ]
        if self.kept:
            parts.append(f"{self.kept:,} translated before")
        if self.unchanged:
            parts.append(f"{self.unchanged:,} left untranslated")
        return f"{self.path}: {'; '.join(parts)}; {self.seconds:.1f} s."

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        counts = {
            "segments": len(self.segments),
            "words": self.words,
            "exact_matches": self.exact_matches,
            "exact_but_for_tags": self.stored,
            "by_neighbours": self.by_neighbours,
            "placeholders_repaired": self.repaired,
            "terms_applied": self.terms,
            "translated_before": self.kept,
            "left_untranslated": self.unchanged,
            "cut": self.cut,
            "seconds": round(self.seconds, 3),
        }
        names = {"path": self.path, "output": self.output, "format": self.format}
        return {**names, **counts, "details": [asdict(segment) for segment in self.segments]}

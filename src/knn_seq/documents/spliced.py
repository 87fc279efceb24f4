"""Formats whose segments are stretches of their text: all else is copied as it is."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from knn_seq.documents.base import Document, Filled, Segment
from knn_seq.documents.encoding import Encoding, decode
from knn_seq.protect import Content, Tag


class SplicedDocument(Document):
    """A text file.  What is between segments, and a segment whose text did not change, is copied.

    A tag of a segment may have segments inside of it, such as a footnote: they are filled, too.
    """

    encoding_errors: ClassVar[str] = "strict"  # what becomes of characters that the file's encoding lacks

    def _read(self, data: bytes) -> list[Segment]:
        self.text, self.encoding = self._decode(data)
        return sorted(self._find(), key=lambda segment: (segment.start, -segment.end))

    def _decode(self, data: bytes) -> tuple[str, Encoding]:
        return decode(data, self.name)

    @abstractmethod
    def _find(self) -> list[Segment]:
        """The segments of `self.text`."""

    @abstractmethod
    def _escaped(self, text: str, segment: Segment) -> str:
        """Text as it has to be written in a segment's place."""

    def _replacement(self, segment: Segment, filled: Filled) -> str:
        """What stands in the segment's place."""
        return self._written(segment, filled.content)

    def _is_unchanged(self, segment: Segment, filled: Filled) -> bool:
        return filled.content == segment.content

    def filled(self, translations: Sequence[Filled | None]) -> bytes:
        """The file with translations in their places."""
        self._changed = [
            (segment, filled)
            for segment, filled in zip(self._segments, translations, strict=True)
            if filled is not None and not self._is_unchanged(segment, filled)
        ]
        self._starts = [segment.start for segment, _ in self._changed]
        return self.encoding.encode(self._between(0, len(self.text)), self.encoding_errors)

    def _written(self, segment: Segment, content: Content) -> str:
        return "".join(self._escaped(part, segment) if isinstance(part, str) else self._raw(part) for part in content)

    def _raw(self, tag: Tag) -> str:
        return tag.raw if tag.in_text else self._between(tag.start, tag.end)

    def _between(self, start: int, end: int) -> str:
        """The text from start to end with the segments that lie in it filled."""
        parts: list[str] = []
        for place in range(bisect_left(self._starts, start), len(self._changed)):
            segment, filled = self._changed[place]
            if segment.start >= end:
                break
            if segment.start < start or segment.end > end:  # inside of one that was written before, or around this
                continue
            parts += [self.text[start : segment.start], self._replacement(segment, filled)]
            start = segment.end
        return "".join([*parts, self.text[start:end]])

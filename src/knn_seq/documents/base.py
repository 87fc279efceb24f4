from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from knn_seq.errors import DamagedFile
from knn_seq.protect import Content, join
from knn_seq.registry import Option, Registry, check_options

LONGEST_TEXT = 200_000  # characters of a paragraph or a string


@dataclass(frozen=True)
class Segment:
    """A piece of a file that is translated at once: a sentence, a string.

    Attributes:
        content: Its text, with the file's inline tags.
        key: What people find it by: an id, a line.
        existing: The translation that the file has for it.
        wanted: It is to be translated.
        start: Where its text, or what takes its translation, begins in the file's text ...
        end: ... and where it ends.
    """

    content: Content
    key: str = ""
    existing: str | None = None
    wanted: bool = True
    start: int = 0
    end: int = 0

    @property
    def text(self) -> str:
        """The text with its tags as they stand in the file."""
        return join(self.content)


class Filled(NamedTuple):
    """What a segment is filled with."""

    content: Content
    origin: str = ""  # where it comes from, in words for people
    final: bool = False  # it need not be reviewed: people wrote it


class Document(ABC):
    """A format: which pieces of its files are text, and a file with translations in their places.

    Args:
        data: The file's bytes.
        name: The file's name, for messages.
        options: Values of those that `options` declares.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()  # file names of this format end so
    options: ClassVar[Mapping[str, Option]] = {}

    def __init__(self, data: bytes, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.name = name
        defaults = {option: declared.default for option, declared in self.options.items()}
        owner = f"The document format {type(self).__name__}"
        self.option_values = {**defaults, **check_options(owner, self.options, options or {})}
        self._segments = self._read(data)
        for segment in self._segments:
            self._require_short(sum(len(part) for part in segment.content if isinstance(part, str)), segment.key)

    @property
    def segments(self) -> Sequence[Segment]:
        """The pieces of text, in the file's order."""
        return self._segments

    def _require_short(self, length: int, key: str) -> None:
        """Raise a `DamagedFile` if a text is too long to be one."""
        if length > LONGEST_TEXT:
            raise DamagedFile(
                f"{self.name} has a text of more than {LONGEST_TEXT:,} characters without an end ({key}): "
                "that is nothing to translate."
            )

    @abstractmethod
    def _read(self, data: bytes) -> list[Segment]:
        """Find the segments; a `DamagedFile` says what is wrong with the file."""

    @abstractmethod
    def filled(self, translations: Sequence[Filled | None]) -> bytes:
        """The file with translations in their places; all that is not text is as it was, byte for byte.

        Args:
            translations: One for each segment; None leaves it as it is.
        """


DOCUMENT_FORMATS: Registry[Document] = Registry(Document, "documents", "document format")  # type: ignore[type-abstract]

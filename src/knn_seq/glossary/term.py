"""What a glossary says of one term, and what became of it in a translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from knn_seq.errors import InvalidSetting


@dataclass(frozen=True)
class Term:
    """A term of the source language and what it has to be in the target language.

    Inflected forms count as the term: those that are listed, or else all words with the same stem, where the language
    has a stemmer.

    Args:
        source: The term.
        target: Its translation; empty if only forbidden ones are known.
        case_sensitive: Other spellings in upper and lower case, and other forms than those listed, are other words.
        part_of_speech: For people; nothing looks at it.
        source_forms: Inflected forms of the source; empty: those with its stem.
        target_forms: Inflected forms of the target; empty: those with its stem.
        forbidden: Translations that must not be used.
    """

    source: str
    target: str
    case_sensitive: bool = False
    part_of_speech: str | None = None
    source_forms: tuple[str, ...] = ()
    target_forms: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise InvalidSetting(f"A term has no source: '{self.target}'.")
        if not self.target.strip() and not self.forbidden:
            raise InvalidSetting(f"The term '{self.source}' has neither a target nor a forbidden one.")


class TermUse(NamedTuple):
    """What became of a term of a source in its translation."""

    source: str  # as it stands in the source
    target: str  # the glossary's; empty if it only forbids
    applied: bool  # the translation has the target, if there is one, and nothing forbidden
    forbidden: str = ""  # what the translation has in spite of the glossary

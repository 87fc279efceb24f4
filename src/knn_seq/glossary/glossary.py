from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from knn_seq.errors import InvalidSetting, NotFound
from knn_seq.glossary.occurrences import TermFinder
from knn_seq.glossary.tbx import is_tbx, read_tbx
from knn_seq.glossary.term import Term
from knn_seq.glossary.tsv import read_tsv
from knn_seq.glossary.words import Spelling


class Glossary:
    """Terms that are binding: where a source has one, its translation has the term's.

    Args:
        terms: The terms; of those that are the same, one counts.
        source_lang: Of the sources, such as "pt"; None: the model's.
        target_lang: Of the targets; None: the model's.
    """

    def __init__(
        self, terms: Iterable[Term] = (), source_lang: str | None = None, target_lang: str | None = None
    ) -> None:
        self.terms = list(dict.fromkeys(terms))
        self.source_lang, self.target_lang = source_lang, target_lang
        self.finder = lru_cache(maxsize=4)(self._finder)

    @classmethod
    def read(cls, path: str | Path, source_lang: str | None = None, target_lang: str | None = None) -> Glossary:
        """The terms of a file: TBX, or tab-separated columns.

        Args:
            path: The file, gzipped or not.
            source_lang: Of the sources; a TBX file with several languages needs it.
            target_lang: Of the targets; a TBX file with several languages needs it.
        """
        path = Path(path)
        if is_tbx(path):
            return cls(*read_tbx(path, source_lang, target_lang))
        return cls(read_tsv(path), source_lang, target_lang)

    def merged(self, other: Glossary) -> Glossary:
        """These terms and another glossary's, which replace those with the same source and target."""
        own = {(term.source, term.target): term for term in self.terms}
        own |= {(term.source, term.target): term for term in other.terms}
        return Glossary(own.values(), other.source_lang or self.source_lang, other.target_lang or self.target_lang)

    def without(self, source: str) -> Glossary:
        """The same without all terms of a source."""
        kept = [term for term in self.terms if term.source != source]
        if len(kept) == len(self.terms):
            raise NotFound(f"The glossary has no term '{source}'.")
        return Glossary(kept, self.source_lang, self.target_lang)

    def _finder(self, source_lang: str | None = None, target_lang: str | None = None) -> TermFinder:
        """What finds the terms in text of a model's languages, unless the glossary has its own."""
        return TermFinder(
            self.terms, Spelling(self.source_lang or source_lang), Spelling(self.target_lang or target_lang)
        )

    def __len__(self) -> int:
        return len(self.terms)

    def __iter__(self) -> Iterator[Term]:
        return iter(self.terms)


GlossaryLike: TypeAlias = "Glossary | str | Path | Mapping[str, str] | Iterable[Term | tuple[str, str]]"


def as_glossary(glossary: GlossaryLike, source_lang: str | None = None, target_lang: str | None = None) -> Glossary:
    """The glossary that a user gave: one, a file, a mapping from sources to targets, terms, or pairs of texts.

    Args:
        glossary: The glossary.
        source_lang: The language to take from a file with several.
        target_lang: The language to take from a file with several.
    """
    if isinstance(glossary, Glossary):
        return glossary
    if isinstance(glossary, str | Path):
        return Glossary.read(glossary, source_lang, target_lang)
    entries = glossary.items() if isinstance(glossary, Mapping) else glossary
    try:
        return Glossary(one if isinstance(one, Term) else Term(*one) for one in entries)
    except TypeError:
        raise InvalidSetting("A glossary is a file, a mapping from sources to targets, or a list of terms.") from None

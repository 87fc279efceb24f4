"""The terms of a source, and what a translation has of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from knn_seq.glossary.matching import Match, Patterns, without_overlaps
from knn_seq.glossary.term import Term, TermUse
from knn_seq.glossary.words import MODES, Spelling

_STEM = MODES.index("stem")


@dataclass(frozen=True)
class Occurrence:
    """A place in a source that has a term."""

    terms: tuple[Term, ...]  # all with this source; the translation of any of them will do
    start: int  # character
    end: int
    text: str  # what stands there

    @cached_property
    def target(self) -> str:
        """The first translation; empty if there are only forbidden ones."""
        return next((term.target for term in self.terms if term.target), "")

    @cached_property
    def target_forms(self) -> tuple[str, ...]:
        """What may be written for it, in the case that the source asks for; the first translation first."""
        forms = [form for term in self.terms if term.target for form in (term.target, *term.target_forms)]
        shouted = len(self.text) > 1 and self.text.isupper() and not any(term.source.isupper() for term in self.terms)
        if shouted and not any(term.case_sensitive for term in self.terms):
            forms = [form.upper() for form in forms]
        return tuple(dict.fromkeys(forms))

    @cached_property
    def forbidden(self) -> tuple[str, ...]:
        """What must not be written for it."""
        return tuple(dict.fromkeys(form for term in self.terms for form in term.forbidden))


class TermFinder:
    """Finds terms in sources.

    Args:
        terms: The terms.
        source: How words of the source language are compared.
        target: How words of the target language are compared.
    """

    def __init__(self, terms: Sequence[Term], source: Spelling, target: Spelling) -> None:
        self.target_spelling = target
        self._patterns: Patterns[Term] = Patterns(source)
        for term in terms:
            self._patterns.add(term, (term.source, *term.source_forms), _mode(term, term.source_forms, source))

    def find(self, text: str) -> list[Occurrence]:
        """The terms of a text, the longest of those that overlap, in the order of the text."""
        return [
            Occurrence(match.owners, match.start, match.end, text[match.start : match.end])
            for match in without_overlaps(self._patterns.all(text))
        ]

    def check(self, occurrences: Sequence[Occurrence]) -> TermCheck:
        """What tells which of the terms of a source a translation has."""
        return TermCheck(occurrences, self.target_spelling)


class TermCheck:
    """Tells which terms of one source a translation has, each as often as the source.

    Args:
        occurrences: The terms of the source.
        spelling: How words of the target language are compared.
    """

    def __init__(self, occurrences: Sequence[Occurrence], spelling: Spelling) -> None:
        self.occurrences, self.language, self._spelling = list(occurrences), spelling.language, spelling
        self._never = {form.casefold() for one in occurrences for form in one.forbidden}

    @cached_property
    def _groups(self) -> list[int]:
        """A number for each occurrence: the same one, the same terms."""
        numbers = {terms: number for number, terms in enumerate(dict.fromkeys(one.terms for one in self.occurrences))}
        return [numbers[one.terms] for one in self.occurrences]

    @cached_property
    def _targets(self) -> Patterns[int]:
        patterns: Patterns[int] = Patterns(self._spelling)
        for group, one in dict(zip(self._groups, self.occurrences, strict=True)).items():
            for term in one.terms:
                forms = (term.target, *term.target_forms) if term.target else ()
                mode = _mode(term, term.target_forms, self._spelling)
                if mode == "exact":
                    forms = (*forms, *map(capitalised, forms))
                patterns.add(group, forms, mode)
        return patterns

    @cached_property
    def _forbidden(self) -> Patterns[str]:
        patterns: Patterns[str] = Patterns(self._spelling)
        for term in dict.fromkeys(term for one in self.occurrences for term in one.terms):
            for form in term.forbidden:
                patterns.add(form, [form], "exact" if term.case_sensitive else "folded")
        return patterns

    def missing(self, text: str) -> list[int]:
        """The numbers of the occurrences whose target a text lacks."""
        return self._missing(self.matches(text))

    def has(self, text: str, occurrence: int) -> bool:
        """Whether a text has the target of an occurrence anywhere."""
        group = self._groups[occurrence]
        return any(group in match.owners for match in self._targets.all(text))

    def matches(self, text: str) -> list[Match[int]]:
        """A place in the text for each occurrence that has one, the longest first; none is used twice."""
        matches = self._targets.all(text)
        if not matches:
            return []
        needed = Counter(self._groups)
        taken: set[int] = set()
        assigned = []
        for match in sorted(matches, key=lambda match: match.rank):
            owner = next((owner for owner in match.owners if needed[owner]), None)
            places = range(match.start, match.end)
            never = match.mode == _STEM and text[match.start : match.end].casefold() in self._never
            if owner is not None and not never and taken.isdisjoint(places):
                needed[owner] -= 1
                taken.update(places)
                assigned.append(replace(match, owners=(owner,)))
        return assigned

    def forbidden(self, text: str) -> list[Match[str]]:
        """Where a text has what is forbidden and not part of a target."""
        if not self._never:
            return []
        taken = {place for match in self.matches(text) for place in range(match.start, match.end)}
        return [match for match in self._forbidden.all(text) if taken.isdisjoint(range(match.start, match.end))]

    def uses(self, text: str) -> list[TermUse]:
        """What became of each occurrence in a translation."""
        missing = set(self.missing(text))
        found = {match.owners[0] for match in self.forbidden(text)}
        uses = []
        for number, one in enumerate(self.occurrences):
            wrong = next((form for form in one.forbidden if form in found), "")
            uses.append(TermUse(one.text, one.target, number not in missing and not wrong, wrong))
        return uses

    def _missing(self, assigned: Sequence[Match[int]]) -> list[int]:
        had = Counter(match.owners[0] for match in assigned)
        missing = []
        for number, (one, group) in enumerate(zip(self.occurrences, self._groups, strict=True)):
            if had[group]:
                had[group] -= 1
            elif one.target:
                missing.append(number)
        return missing


def capitalised(text: str) -> str:
    """The same with a large first letter."""
    return text[:1].upper() + text[1:]


def _mode(term: Term, forms: Sequence[str], spelling: Spelling) -> str:
    if term.case_sensitive:
        return "exact"
    return "folded" if forms or not spelling.stems else "stem"

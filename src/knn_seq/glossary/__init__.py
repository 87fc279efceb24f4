"""Binding terms: what a source has of them, and whether a translation has theirs."""

from knn_seq.glossary.glossary import Glossary, GlossaryLike, as_glossary
from knn_seq.glossary.occurrences import Occurrence, TermCheck, TermFinder
from knn_seq.glossary.store import keep_glossary, stored_glossary
from knn_seq.glossary.term import Term, TermUse

__all__ = [
    "Glossary",
    "GlossaryLike",
    "Occurrence",
    "Term",
    "TermCheck",
    "TermFinder",
    "TermUse",
    "as_glossary",
    "keep_glossary",
    "stored_glossary",
]

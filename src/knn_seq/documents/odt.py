from __future__ import annotations

from collections.abc import Sequence

from knn_seq.documents.base import DOCUMENT_FORMATS
from knn_seq.documents.markup import Element, MarkupDocument
from knn_seq.documents.package import PackageDocument
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.documents.tokens import Token, names

PARAGRAPHS = frozenset({"text:p", "text:h"})
INLINE = frozenset({"text:span", "text:a", "text:meta", "text:ruby", "text:ruby-base"})
APART = frozenset({"text:note", "draw:frame", "draw:custom-shape", "draw:g"})
POINTS = frozenset({"text:s", "text:tab", "text:line-break", "text:soft-page-break", "office:annotation-end"})
POINT_NAMES = ("text:bookmark", "text:reference", "text:change", "text:alphabetical", "text:toc", "text:user-index")
HIDDEN = frozenset({"office:annotation", "text:note-citation", "text:tracked-changes", "office:binary-data", "script"})


class _Part(MarkupDocument):
    """The XML of an OpenDocument text."""

    def _has_text(self, opened: Sequence[str]) -> bool:
        return not PARAGRAPHS.isdisjoint(opened)

    def _kind(self, token: Token) -> Element:
        name = token.name
        if name in INLINE:
            return Element.INLINE
        if name in APART:
            return Element.APART
        if name in POINTS or name.startswith(POINT_NAMES) or name == "office:annotation":
            return Element.POINT
        if name in HIDDEN:
            return Element.HIDDEN
        # What else the namespace of text has inside of a paragraph are fields: a page's number, a date.
        return Element.WORD if name in FIELDS else Element.BLOCK


FIELDS = frozenset(
    f"text:{name}"
    for name in names(
        "author-initials author-name bibliography-mark chapter character-count conditional-text creation-date "
        "creation-time creator database-display date description drop-down editing-cycles expression file-name "
        "hidden-text image-count initial-creator keywords measure modification-date modification-time "
        "object-count page-continuation page-count page-number paragraph-count placeholder print-date printed-by "
        "sequence sequence-ref subject table-count template-name time title user-defined user-field-get "
        "variable-get variable-set word-count"
    )
)


@DOCUMENT_FORMATS.register("odt")
class OdtDocument(PackageDocument):
    """An OpenDocument text: its paragraphs, notes, headers and footers."""

    suffixes = (".odt", ".ott")

    def _is_text(self, part: str) -> bool:
        return part in ("content.xml", "styles.xml")

    def _open(self, data: bytes, part: str) -> SplicedDocument:
        return _Part(data, part, {"source_lang": self.option_values["source_lang"]})

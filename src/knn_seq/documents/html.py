from __future__ import annotations

from collections.abc import Sequence

from knn_seq.documents.base import DOCUMENT_FORMATS
from knn_seq.documents.encoding import Encoding, declared_in_html, decode
from knn_seq.documents.markup import Element, MarkupDocument
from knn_seq.documents.tokens import Token, html_tokens, names

INLINE = names(
    "a abbr acronym b bdi bdo big cite del dfn em font i ins label mark q s small span strike strong sub sup time u"
)
WORDS = names("code data kbd math output samp svg tt var")
POINTS = names("br embed img input wbr")
HIDDEN = names("audio canvas iframe noscript object pre script style template textarea video")


@DOCUMENT_FORMATS.register("html")
class HtmlDocument(MarkupDocument):
    """A web page: its text, and the attributes that people read."""

    suffixes = (".html", ".htm", ".xhtml")
    translated_attributes = frozenset({"alt", "title", "placeholder", "aria-label"})

    def _decode(self, data: bytes) -> tuple[str, Encoding]:
        return decode(data, self.name, declared_in_html(data))

    def _tokens(self) -> Sequence[Token]:
        return html_tokens(self.text)

    def _kind(self, token: Token) -> Element:
        untouched = token.attributes.get("translate") == "no"
        if token.name in POINTS:
            return Element.INLINE  # nothing closes it
        if token.name in WORDS or (untouched and token.name in INLINE):
            return Element.WORD
        if token.name in INLINE:
            return Element.INLINE
        return Element.HIDDEN if token.name in HIDDEN or untouched else Element.BLOCK

from __future__ import annotations

from collections.abc import Sequence

from knn_seq.documents.base import DOCUMENT_FORMATS
from knn_seq.documents.markup import Element, MarkupDocument
from knn_seq.documents.tokens import Token, names, xml_tokens

INLINE = names(
    "abbrev acronym application citetitle database emphasis firstterm foreignphrase glossterm guibutton "
    "guiicon guilabel guimenu guimenuitem guisubmenu hardware interface interfacename keycap keycode keycombo "
    "keysym link lineannotation medialabel mousebutton olink personname phrase productname quote remark "
    "subscript superscript token trademark ulink wordasword"
)
WORDS = names(
    "citation citerefentry classname code command computeroutput constant email envar errorcode exceptionname "
    "filename function inlineequation literal markup menuchoice methodname option optional package parameter "
    "prompt property replaceable returnvalue sgmltag structfield structname symbol systemitem type uri "
    "userinput varname xref"
)
POINTS = names("anchor footnoteref indexterm inlinegraphic inlinemediaobject")
HIDDEN = names(
    "address classsynopsis cmdsynopsis funcsynopsis literallayout programlisting releaseinfo screen screenco synopsis"
)


@DOCUMENT_FORMATS.register("docbook")
class DocBookDocument(MarkupDocument):
    """DocBook: the sources of many manuals."""

    suffixes = (".docbook", ".dbk", ".xml")

    def _tokens(self) -> Sequence[Token]:
        return xml_tokens(self.text, self.name, entities=True)

    def _kind(self, token: Token) -> Element:
        name = token.name.rpartition(":")[2]
        if name in WORDS:
            return Element.WORD
        if name in INLINE:
            return Element.INLINE
        if name in POINTS:
            return Element.POINT
        if name == "footnote":
            return Element.APART
        return Element.HIDDEN if name in HIDDEN else Element.BLOCK

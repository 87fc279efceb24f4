from __future__ import annotations

from knn_seq.corpus.xml_stream import Element

# Elements of TMX and XLIFF that hold codes of the document that a text comes from.  All others, such as hi, g, pc and
# mrk, stand around text, or are empty.
CODES = frozenset({"bpt", "ept", "ph", "it", "ut", "sub"})


def plain_text(segment: Element | None) -> str:
    """The text of a segment without inline codes; nothing, if there is no segment."""
    return "" if segment is None else segment.text(without=CODES)

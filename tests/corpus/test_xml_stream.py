"""The XML reader: the same elements as a complete parse, and one sentence for whatever is hostile or damaged."""

from __future__ import annotations

import gzip
import tracemalloc
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.corpus import xml_stream
from knn_seq.corpus.xml_stream import Element, read_elements
from knn_seq.errors import DamagedFile

MOST_MEMORY = 16 << 20

in_xml = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=9
)
names = st.sampled_from("abcu")
trees = st.recursive(
    st.tuples(names, st.dictionaries(names, in_xml, max_size=2), st.just(())),
    lambda inside: st.tuples(
        names, st.dictionaries(names, in_xml, max_size=2), st.lists(st.one_of(inside, in_xml), max_size=4).map(tuple)
    ),
    max_leaves=12,
)


def written(tree) -> str:
    if isinstance(tree, str):
        return escape(tree)
    name, attributes, content = tree
    given = "".join(f' {key}="{escape(value, {chr(34): "&quot;"})}"' for key, value in attributes.items())
    return f"<{name}{given}>{''.join(map(written, content))}</{name}>"


def expected(root: ElementTree.Element, complete: str) -> list:
    """What the stream should give, from a complete parse."""
    found = [] if root.tag == complete else [(root.tag, root.attrib, "")]
    if root.tag == complete:
        return [(root.tag, root.attrib, "".join(root.itertext()))]
    return found + [row for child in root for row in expected(child, complete)]


@given(tree=trees, encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be"]), gzipped=st.booleans())
def test_the_elements_are_those_of_a_complete_parse(tmp_path_factory, tree, encoding, gzipped):
    text = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig").removesuffix("-be")}"?>{written(tree)}'
    path = tmp_path_factory.mktemp("xml") / "a.xml"
    path.write_bytes(gzip.compress(text.encode(encoding)) if gzipped else text.encode(encoding))
    found = [(element.name, element.attributes, element.text()) for element in read_elements(path, complete=("u",))]
    assert found == expected(ElementTree.fromstring(written(tree)), "u")


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 16])
def test_chunks_make_no_difference(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(xml_stream, "CHUNK_BYTES", chunk)
    path = tmp_path / "a.xml"
    path.write_text("<r>x<u a='é'>é<b>ü</b>&amp;<![CDATA[<c>]]><!-- no --></u><u/></r>")
    first, unit, empty = read_elements(path, complete={"u"})
    assert (first.name, first.content, unit.text(), empty.content) == ("r", [], "éü&<c>", [])
    assert unit.text(without=("b",)) == "é&<c>"
    assert unit.attributes == {"a": "é"}


def test_names_are_those_in_the_namespace_of_the_root(tmp_path):
    path = tmp_path / "a.xml"
    path.write_text('<x:r xmlns:x="urn:1" xmlns:y="urn:2" xml:lang="pt" y:k="1">\n<x:u><y:u/><u/><x:v/></x:u></x:r>')
    root, unit = read_elements(path, complete={"u"})
    assert (root.name, root.attributes) == ("r", {"xml:lang": "pt", "{urn:2}k": "1"})
    assert [part.name for part in unit.content if isinstance(part, Element)] == ["{urn:2}u", "{}u", "v"]
    assert unit.line == 2
    assert unit.child("v") is not None
    assert unit.child("u") is None


@pytest.mark.parametrize("declared", ["utf-8", "utf-16", "iso-8859-1"], ids=lambda name: f"declared as {name}")
def test_a_byte_order_mark_is_right_whatever_is_declared(tmp_path, declared):
    path = tmp_path / "a.xml"
    for encoding in ("utf-16", "utf-8-sig"):
        path.write_bytes(f'<?xml version="1.0" encoding="{declared}"?><u>é</u>'.encode(encoding))
        assert [element.text() for element in read_elements(path, {"u"})] == ["é"]


def test_an_encoding_of_one_byte_that_is_declared(tmp_path):
    path = tmp_path / "a.xml"
    path.write_bytes('<?xml version="1.0" encoding="windows-1252"?><u>“é”</u>'.encode("windows-1252"))
    assert [element.text() for element in read_elements(path, {"u"})] == ["“é”"]


def test_a_doctype_is_not_looked_up(tmp_path):
    path = tmp_path / "a.xml"
    path.write_text('<!DOCTYPE r SYSTEM "http://localhost:1/no.dtd" [<!ATTLIST u a CDATA "added">]><r><u>x</u></r>')
    assert [(one.name, one.attributes) for one in read_elements(path, {"u"})] == [("r", {}), ("u", {})]


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
HOSTILE = {
    "billion laughs": (f'<!DOCTYPE r [<!ENTITY l0 "ha">{LAUGHS}]><r><u>&l9;</u></r>', "declares the entity 'l0'"),
    "external entity": ('<!DOCTYPE r [<!ENTITY f SYSTEM "file:///etc/passwd">]><r>&f;</r>', "declares the entity 'f'"),
    "parameter entity": ('<!DOCTYPE r [<!ENTITY % p SYSTEM "http://localhost:1/x"> %p;]><r/>', "entity 'p'"),
    "unparsed entity": (
        '<!DOCTYPE r [<!NOTATION n SYSTEM "n"><!ENTITY p SYSTEM "x" NDATA n>]><r/>',
        "declares the entity 'p'",
    ),
    "entity of the DTD": (
        '<!DOCTYPE r SYSTEM "r.dtd"><r>\n<u>&nbsp;</u></r>',
        "line 2: it refers to the entity 'nbsp'",
    ),
    "unknown entity": ("<r><u>&nbsp;</u></r>", "no well-formed XML at line 1, column 7: undefined entity"),
    "deep": ("<u>" * 10**6, "more than 200 levels deep"),
    "huge attribute": (f"<r a='{'x' * (20 << 20)}'/>", "a tag or comment of more than 1 MiB"),
    "huge comment": (f"<r><!--{'x' * (20 << 20)}--></r>", "a tag or comment of more than 1 MiB"),
    "endless beginning": ("<?pi?>" * (4 << 20), "no element in its first 1 MiB"),
    "names": ("<r>" + "".join(f"<a{n}/>" for n in range(200_000)) + "</r>", "more than 10,000 different names"),
    "truncated": ("<r>\n<u>a</u>\n<u>b", "no well-formed XML at line 3, column 5: no element found"),
    "mismatched": ("<r><u></r></u>", "mismatched tag"),
    "empty": ("", "no element found"),
    "no XML": ("um\tone\n", "no well-formed XML at line 1, column 1"),
    "undeclared prefix": ("<r><x:u/></r>", "unbound prefix"),
    "encoding": ('<?xml version="1.0" encoding="shift_jis"?><r/>', "encoding that cannot be read"),
    "no encoding": ('<?xml version="1.0" encoding="nonsense"?><r/>', "unknown encoding: nonsense"),
}


@pytest.mark.parametrize(("text", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_xml_gets_one_sentence_and_little_memory(tmp_path, text, message):
    path = tmp_path / "a.xml"
    path.write_bytes(gzip.compress(text.encode(), 1))
    del text
    tracemalloc.start()
    with pytest.raises(DamagedFile, match=message) as raised:
        for _ in read_elements(path, {"u"}):
            pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST_MEMORY
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["x" * (8 << 20), "<b/>" * (1 << 17), "<b a='xxxxxxxx'>y</b>" * (1 << 16)])
def test_a_huge_element_is_dropped_and_the_next_one_is_read(tmp_path, content):
    path = tmp_path / "a.xml"
    path.write_text(f"<r><u>{content}</u><u>next</u></r>")
    tracemalloc.start()
    long, following = (element for element in read_elements(path, {"u"}) if element.name == "u")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (long.too_long, long.text(), following.too_long, following.text()) == (True, "", False, "next")
    assert peak < MOST_MEMORY

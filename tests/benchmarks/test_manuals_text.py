from __future__ import annotations

from html_blocks import Block, blocks_of
from manuals_text import Page, man_blocks, phrases
from office_help_text import phrases as office_phrases


def test_paragraphs_of_html_have_tag_id_and_text():
    page = """<html><head><title>Help</title><style>p {}</style></head><body>
        <h1 id="hd_1">Find   Bar</h1><p id="par_1">Click <b>Open</b>,<br>then wait.<p id="par_2">Next &amp; last
        <pre>code</pre></body>"""
    assert [block for block in blocks_of(page) if block.text] == [
        Block("title", "", "Help"),
        Block("h1", "hd_1", "Find Bar"),
        Block("p", "par_1", "Click Open, then wait."),
        Block("p", "par_2", "Next & last"),
    ]


def test_help_is_aligned_by_id():
    portuguese = {"a#1": "Clique em Abrir para continuar agora", "a#2": "Only in this one of them", "a#3": "Salvar"}
    english = {"a#1": "Click Open to continue now", "a#2": "Only in this one of them", "a#3": "Save", "b#1": "More"}
    assert list(office_phrases(portuguese, english)) == [((portuguese["a#1"], english["a#1"]), "a#1")]


def test_a_man_page_is_cut_at_its_macros():
    page = r""".\" a comment
.TH HIER 7
.SH "RETURN VALUE"
Contains \fIfiles\fP of
.BR mknod (1).
.TP
.B \-x
Do it\~now.
.nf
code
.fi
.PP
Last.
"""
    assert [(block.tag, block.text) for block in man_blocks(page)] == [
        ("SH", "RETURN VALUE"),
        ("text", "Contains files of mknod(1)."),
        ("TP", "-x Do it now."),
        ("nf", ""),
        ("fi", ""),
        ("PP", "Last."),
    ]


def test_sections_with_the_same_tags_are_aligned_and_no_others():
    def page(*sections):
        return [Block(tag, "", text) for section in sections for tag, text in section]

    pages = {
        Page(True, "p"): page(
            [("h1", "Um"), ("p", "Este é o primeiro texto longo")],
            [("h1", "Dois"), ("p", "a"), ("p", "Um texto a mais")],
        ),
        Page(False, "p"): page(
            [("h1", "One"), ("p", "This is the first long text")], [("h1", "Two"), ("p", "This is one text less")]
        ),
        Page(True, "only"): page([("h1", "Um"), ("p", "Este texto não tem par em inglês")]),
    }
    assert list(phrases(pages)) == [(("Este é o primeiro texto longo", "This is the first long text"), "p")]

"""What each format makes of its segments."""

from __future__ import annotations

import polib
import pytest
from samples import MARKDOWN, PO, SAMPLES, TMX, XLIFF_1, XLIFF_2

from knn_seq.documents import DOCUMENT_FORMATS, Filled, open_document
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.protect import join


def filled(format, text, words, options=None, final=False, origin="neighbours 40 %"):
    """The file with every wanted segment's text replaced by looking it up."""
    document = DOCUMENT_FORMATS.get(format)(text.encode(), "x", options)
    translations = [
        Filled(tuple(words(part) if isinstance(part, str) else part for part in segment.content), origin, final)
        if segment.wanted
        else None
        for segment in document.segments
    ]
    return document.filled(translations).decode()


def test_po_fills_what_is_missing_or_fuzzy_and_marks_it():
    catalog = polib.pofile(filled("po", PO, str.upper))
    before = polib.pofile(PO)
    assert catalog.metadata == before.metadata
    entries = {entry.msgid: entry for entry in catalog}
    assert entries["Olá %s\n"].msgstr == "OLÁ %S\n"
    assert entries["Olá %s\n"].flags == ["fuzzy", "c-format"]
    assert entries["Olá %s\n"].tcomment == "knn-seq: neighbours 40 %"
    assert (entries["Novo"].msgstr, entries["Novo"].msgctxt) == ("NOVO", "menu")
    assert entries["Novo"].previous_msgid == "Antigo"
    assert entries["um arquivo"].msgstr_plural == {0: "UM ARQUIVO", 1: "%D ARQUIVOS"}
    assert entries["Pronto"].msgstr == "Ready"
    assert not entries["Pronto"].fuzzy
    long = next(entry for entry in catalog if entry.msgid.startswith("Uma mensagem"))
    assert long.msgstr == long.msgid.upper()
    assert [entry.msgid for entry in catalog.obsolete_entries()] == ["velho"]


def test_po_of_stored_translations_is_not_fuzzy_and_a_second_run_changes_nothing_but_the_rest():
    catalog = polib.pofile(filled("po", PO, str.upper, final=True, origin="exact match"))
    assert not any(entry.fuzzy for entry in catalog)
    once = filled("po", PO, str.upper)
    twice = filled("po", once, str.upper)
    assert once == twice


def test_po_with_one_plural_form_takes_the_plural():
    text = 'msgid "um"\nmsgid_plural "muitos"\nmsgstr[0] ""\n'
    assert 'msgstr[0] "MUITOS"' in filled("po", text, str.upper)


@pytest.mark.parametrize("text", ['msgid "a"\nmsgid "b"\n', 'msgstr "a"\n', "tudo errado\n", 'msgid "a\nmsgstr ""\n'])
def test_po_that_is_none_is_refused(text):
    with pytest.raises(DamagedFile, match="no gettext catalog"):
        DOCUMENT_FORMATS.get("po")(text.encode(), "x.po")


def test_xliff_fills_targets_with_a_state_and_leaves_final_ones_alone():
    text = filled("xliff", XLIFF_1, str.upper)
    state = 'state="needs-review-translation" state-qualifier="x-neighbours-40"'
    assert f'\n    <target {state}>ABRA <g id="1">O ARQUIVO <x id="2"/></g> &amp; <bpt id="3">' in text
    assert f"<source>Novo</source><target {state}>NOVO</target>" in text
    assert "<target state='final'>Ready</target>" in text
    assert "<source>Nunca</source></trans-unit>" in text
    assert f"<target {state}>VAZIO</target>" in text
    exact = filled("xliff", XLIFF_1, str.upper, final=True, origin="exact match")
    assert 'state="translated" state-qualifier="exact-match"' in exact


def test_xliff_2_marks_the_segment():
    text = filled("xliff", XLIFF_2, str.upper)
    assert '<segment id="s1" state="translated" subState="knn-seq:neighbours-40">' in text
    assert '<target>ABRA <pc id="1">ISTO</pc> COM <ph id="2"/></target></segment>' in text
    assert '<segment id="s2" state="final"><source>Pronto</source><target>Ready</target>' in text


def test_tmx_gets_the_missing_language():
    text = filled("tmx", TMX, str.upper, {"target_lang": "en"})
    assert '\n    <tuv xml:lang="en" creationid="knn-seq"><prop type="x-origin">neighbours 40 %</prop><seg>ABRA' in text
    assert '<tuv xml:lang="en-GB"><seg>VAZIO</seg>' in text
    assert '<tuv xml:lang="en"><seg>Ready</seg>' in text
    with pytest.raises(InvalidSetting, match="which one to fill"):
        DOCUMENT_FORMATS.get("tmx")(TMX.encode(), "x.tmx")


def test_markdown_sees_sentences_and_no_code():
    texts = [segment.text for segment in DOCUMENT_FORMATS.get("markdown")(MARKDOWN.encode(), "x").segments]
    assert texts[0] == "Um *título* com `código`"
    assert texts[1] == 'Um parágrafo com **texto [forte](http://x.org "t")** e `git push`.'
    assert texts[2].startswith("Segunda\nfrase, * escapada")
    assert not [text for text in texts if "print" in text or "title" in text]
    assert texts[-1] == "Veja [ref] e [o texto][ref] e <b>negrito</b><br> &amp; fim."


def test_markdown_escapes_what_would_be_markup():
    text = filled(
        "markdown", "Um texto.\n\nOutro * texto.\n", lambda text: "1. *x* [y] <z> `" if text[0] == "U" else text + "*"
    )
    assert text == "1\\. \\*x\\* \\[y\\] \\<z> \\`\n\nOutro * texto.*\n"


def test_html_sees_text_and_attributes_and_hides_scripts():
    texts = {segment.text for segment in DOCUMENT_FORMATS.get("html")(SAMPLES["html"][1], "x").segments}
    assert {"Olá & adeus", 'dica "boa"', "Uma figura", "Item sem fim"} <= texts
    assert not any("alert" in text or "puro" in text or text == "Nada" for text in texts)


def test_letters_that_an_encoding_lacks_become_references():
    document = DOCUMENT_FORMATS.get("html")(b"<meta charset=iso-8859-1><p>caf\xe9</p>", "x")
    assert document.filled([Filled(("Ωé",))]) == b"<meta charset=iso-8859-1><p>&#937;\xe9</p>"


def test_json_paths_are_keys_and_descriptions_are_no_text():
    segments = DOCUMENT_FORMATS.get("json")(SAMPLES["json"][1], "x").segments
    assert [(segment.key, segment.text) for segment in segments] == [
        ("a", "Olá, é isto"),
        ("n.1", "dois"),
        ("n.2.c", 'Três "x" {0}'),
    ]


def test_subtitles_of_two_speakers_are_two_segments():
    segments = DOCUMENT_FORMATS.get("subtitles")(SAMPLES["srt"][1], "x").segments
    assert [(segment.key, segment.text) for segment in segments] == [
        ("00:00:01,000", "<i>Olá</i>, mundo."),
        ("00:00:01,000", "Sim,\r\nclaro."),
        ("00:00:03,000", "Fim"),
    ]


def test_a_footnote_is_filled_inside_of_its_paragraph():
    for name in ("docbook", "odt"):
        format, data, options = SAMPLES[name]
        document = DOCUMENT_FORMATS.get(format)(data, "x", options)
        inner = next(segment for segment in document.segments if segment.text == "Uma nota.")
        outer = next(segment for segment in document.segments if "Texto com" in segment.text)
        assert outer.start < inner.start < inner.end < outer.end or format == "odt"
        translations = [
            Filled(tuple("X" if isinstance(part, str) and part.strip() else part for part in segment.content))
            for segment in document.segments
        ]
        again = DOCUMENT_FORMATS.get(format)(document.filled(translations), "x", options)
        assert {
            "".join(p for p in s.content if isinstance(p, str)).replace("X", "").strip() for s in again.segments
        } <= {"", ". ."}


def test_the_name_tells_the_format(tmp_path):
    (tmp_path / "a.PO").write_text(PO)
    assert type(open_document(tmp_path / "a.PO")).__name__ == "PoDocument"
    (tmp_path / "a.xyz").write_text("Olá")
    with pytest.raises(InvalidSetting, match=r"tells no format .* docbook \(\.docbook \.dbk \.xml\), docx"):
        open_document(tmp_path / "a.xyz")
    assert join(open_document(tmp_path / "a.xyz", "text").segments[0].content) == "Olá"

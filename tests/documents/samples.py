# ruff: noqa: E501
"""A file of every format, as small as shows what the format can."""

from __future__ import annotations

import io
import zipfile

TEXT = """Um título

  Um parágrafo que foi quebrado porque é comprido demais para
  uma linha só. O Sr. Silva viu %s.  Fim!
- item um
2) item dois\r
"""
MARKDOWN = """---
title: Guia
---
# Um *título* com `código`

Um parágrafo com **texto [forte](http://x.org "t")** e `git push`. Segunda
frase, \\* escapada, snake_case e 2 < 3. ![figura](a.png)

> citação um
> continua *em
> duas* linhas.

- [ ] tarefa _uma_
- item dois\x20\x20
  quebra
  1. dentro

| cabeça | outra |
|---|---|
| célula | de *tabela* |

    código

```py
print("código")
```
Veja [ref] e [o texto][ref] e <b>negrito</b><br> &amp; fim.

[ref]: http://y.org
"""
HTML = """<!DOCTYPE html>
<html lang=pt><head><meta charset="utf-8"><title>Ol&aacute; &amp; adeus</title>
<style>p { color: red }</style><script>if (a < b) alert("texto")</script></head>
<body class='x'  data-a="<b>"><h1>T&iacute;tulo</h1><!-- nota <p> -->
<p>Clique em <b>o <i title="dica &quot;boa&quot;">bot&#227;o</i></b> azul<br>agora. Depois use <code>ls -l</code>
e veja a <img src=a.png alt='Uma figura'> figura.&nbsp;<b>Uma frase. Outra frase.</b></p>
<ul><li>Item sem fim<li translate=no>Nada</li><li>Outro <span translate="no">XYZ</span> item</ul><pre>texto  puro</pre>
<p>1 < 2 & 3 > 2</body></html>"""
DOCBOOK = """<?xml version="1.0" encoding="utf-8"?>\r
<!DOCTYPE book PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN" "http://x/docbookx.dtd" [<!ENTITY app "Programa">]>
<book><title>Manual do &app;</title>
<para>Texto com <emphasis>ênfase</emphasis><footnote><para>Uma nota. Duas.</para></footnote> e <xref linkend="a"/>
na linha. Veja <![CDATA[<isto>]]> também &mdash; ok.</para>
<screen>ls -l</screen></book>
"""
XLIFF_1 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="pt" target-language="en"><body>
  <trans-unit id="um">
    <source>Abra <g id="1">o arquivo <x id="2"/></g> &amp; <bpt id="3">&lt;b></bpt>veja<ept id="3">&lt;/b></ept></source>
    <note>uma nota</note>
  </trans-unit>
  <trans-unit id="dois"><source>Novo</source><target state="new">Novo</target></trans-unit>
  <trans-unit id="tres"><source>Pronto</source><target state='final'>Ready</target></trans-unit>
  <trans-unit id="quatro" translate="no"><source>Nunca</source></trans-unit>
  <trans-unit id="cinco"><source>Vazio</source><target/></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<xliff version="2.1" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="pt" trgLang="en"><file id="f">
 <unit id="um"><segment id="s1"><source>Abra <pc id="1">isto</pc> com <ph id="2"/></source></segment>
  <segment id="s2" state="final"><source>Pronto</source><target>Ready</target></segment></unit>
</file></xliff>
"""
TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header srclang="pt" datatype="plaintext"/><body>
  <tu tuid="um">
    <tuv xml:lang="pt-BR"><seg>Abra <bpt i="1">&lt;b></bpt>isto<ept i="1">&lt;/b></ept> com <ph>%s</ph></seg></tuv>
  </tu>
  <tu><tuv xml:lang="pt"><seg>Pronto</seg></tuv><tuv xml:lang="en"><seg>Ready</seg></tuv></tu>
  <tu><tuv xml:lang="pt"><seg>Vazio</seg></tuv><tuv xml:lang="en-GB"><seg></seg></tuv></tu>
</body></tmx>
"""
PO = """# Um comentário
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#. do programa
#: a.c:1
#, c-format
msgid "Olá %s\\n"
msgstr ""

#, fuzzy
#| msgid "Antigo"
msgctxt "menu"
msgid "Novo"
msgstr "Old"

#, c-format
msgid "um arquivo"
msgid_plural "%d arquivos"
msgstr[0] ""
msgstr[1] ""

msgid "Pronto"
msgstr "Ready"

msgid ""
"Uma mensagem comprida demais para uma linha só, com \\"aspas\\"\\n"
"e outra linha."
msgstr ""

#~ msgid "velho"
#~ msgstr "old"
"""
SRT = """1\r
00:00:01,000 --> 00:00:02,500\r
- <i>Olá</i>, mundo.\r
- Sim,\r
claro.\r
\r
2
00:00:03,000 --> 00:00:04,000
{\\an8}Fim
"""
VTT = """WEBVTT - título

NOTE nada disto

STYLE
::cue { color: red }

um
00:01.000 --> 00:02.000 align:start
<v Ana>Olá <b>mundo</b>
de novo.
"""
JSON = '{"a": "Olá, \\u00e9 isto", "n": [1, "dois", {"c": "Três \\"x\\" {0}"}],\n "@a": {"description": "não"}, "e": true, "u": ""}\n'
PROPERTIES = "# comentário\nchave = Valor \\u00e9 {0} \\\n    e continua\noutra: x\\n y\n\nsem valor\n! fim\nvazia=\n"
STRINGS = '/* um "comentário" */\n"chave" = "Valor \\"x\\" %@";\nsimples = "Olá"; // fim\n'

ODT_CONTENT = """<?xml version="1.0" encoding="UTF-8"?>
<office:document-content xmlns:office="o" xmlns:text="t" xmlns:draw="d" xmlns:number="n"><number:text>fora</number:text>
<office:body><office:text><text:h text:outline-level="1">Um título</text:h>
<text:p text:style-name="P1">Texto com <text:span text:style-name="T1">ênfase</text:span><text:note text:id="n1">\
<text:note-citation>1</text:note-citation><text:note-body><text:p>Uma nota.</text:p></text:note-body></text:note> e\
<text:s text:c="2"/>página <text:page-number>3</text:page-number>. Outra frase.</text:p></office:text></office:body>
</office:document-content>"""
DOCX_CONTENT = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<w:document xmlns:w="w"><w:body><w:p w:rsidR="1"><w:pPr><w:jc w:val="left"/></w:pPr><w:r w:rsidR="2"><w:t>Clique em o </w:t></w:r>\
<w:r><w:rPr><w:b/></w:rPr><w:t>bot</w:t></w:r><w:proofErr w:type="spellStart"/><w:r w:rsidR="3"><w:rPr><w:b/></w:rPr><w:t>ão</w:t></w:r>\
<w:r><w:t xml:space="preserve"> azul.</w:t></w:r><w:r><w:tab/><w:t>Outra frase &amp; fim.</w:t></w:r></w:p>\
<w:p><w:r><w:instrText>PAGE</w:instrText></w:r></w:p></w:body></w:document>"""


def packed(parts: dict[str, str]) -> bytes:
    """A zip archive, with a picture that is no text."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        if "content.xml" in parts:
            archive.writestr(zipfile.ZipInfo("mimetype"), "application/vnd.oasis.opendocument.text")
        for name, text in parts.items():
            archive.writestr(name, text)
        archive.writestr("media/picture.png", bytes(range(256)))
    return file.getvalue()


ODT = packed({"content.xml": ODT_CONTENT, "meta.xml": "<meta>não</meta>"})
DOCX = packed({"[Content_Types].xml": "<Types/>", "word/document.xml": DOCX_CONTENT, "word/styles.xml": "<w:styles/>"})

# name: (format, file, options)
SAMPLES: dict[str, tuple[str, bytes, dict[str, str]]] = {
    "text": ("text", TEXT.encode(), {}),
    "text in UTF-16": ("text", TEXT.encode("utf-16"), {}),
    "markdown": ("markdown", MARKDOWN.encode(), {}),
    "markdown with CRLF": ("markdown", MARKDOWN.replace("\n", "\r\n").encode(), {}),
    "html": ("html", HTML.encode(), {}),
    "html in Latin-1": ("html", HTML.replace("utf-8", "iso-8859-1").encode("iso-8859-1"), {}),
    "docbook": ("docbook", DOCBOOK.encode(), {}),
    "xliff 1.2": ("xliff", XLIFF_1.encode(), {}),
    "xliff 2.1": ("xliff", XLIFF_2.encode(), {}),
    "tmx": ("tmx", TMX.encode(), {"target_lang": "en"}),
    "po": ("po", PO.encode(), {}),
    "srt": ("subtitles", SRT.encode(), {}),
    "vtt": ("subtitles", VTT.encode(), {}),
    "json": ("json", JSON.encode(), {}),
    "properties": ("properties", PROPERTIES.encode(), {}),
    "strings": ("strings", STRINGS.encode("utf-16"), {}),
    "odt": ("odt", ODT, {}),
    "docx": ("docx", DOCX, {}),
}
BILINGUAL = ("po", "xliff", "tmx")  # an untouched file has places to fill

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import BinaryIO

from knn_seq import __version__
from knn_seq.corpus.dates import tmx_date
from knn_seq.corpus.languages import language_rank
from knn_seq.corpus.pair import SentencePair
from knn_seq.corpus.writers.base import PAIR_WRITERS, PairWriter
from knn_seq.errors import InvalidSetting
from knn_seq.runtime.wording import count

log = logging.getLogger(__name__)

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"
# Line ends and, in attributes, tabs would be read as something else, were they not written as references.
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE = {**_MARKUP, **str.maketrans({'"': "&quot;", "\n": "&#10;", "\t": "&#9;"})}
_HEADER = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
<header creationtool="knn-seq" creationtoolversion="{version}" segtype="sentence" o-tmf="knn-seq" adminlang="en"\
 srclang="{source_lang}" datatype="plaintext"/>
<body>
"""
_END = """</body>
</tmx>
"""


@PAIR_WRITERS.register("tmx")
class TmxWriter(PairWriter):
    """TMX 1.4: the id as `tuid`, the date as `changedate`, the corpus as a `prop`.

    Characters that XML has no way to write (most control characters) become U+FFFD, which is logged.
    """

    def write(
        self, pairs: Iterable[SentencePair], stream: BinaryIO, source_lang: str | None, target_lang: str | None
    ) -> None:
        """Write a translation unit for each pair."""
        if not source_lang or not target_lang:
            raise InvalidSetting("A TMX file names its languages: give the source language and the target language.")
        if language_rank(source_lang, target_lang) == 0:
            raise InvalidSetting(f"A TMX file needs two languages, not {source_lang} on both sides.")
        languages = [code.translate(_ATTRIBUTE) for code in (source_lang, target_lang)]
        stream.write(_HEADER.format(version=__version__, source_lang=languages[0]).encode())
        replaced = 0
        for pair in pairs:
            text, number = NOT_IN_XML.subn(REPLACEMENT, _unit(pair, *languages))
            replaced += number
            stream.write(text.encode())
        stream.write(_END.encode())
        if replaced:
            log.warning("%s that XML cannot hold became U+FFFD.", count(replaced, "character"))


def _unit(pair: SentencePair, source_lang: str, target_lang: str) -> str:
    attributes = {"tuid": pair.id, "changedate": tmx_date(pair.date)}
    given = "".join(f' {name}="{value.translate(_ATTRIBUTE)}"' for name, value in attributes.items() if value)
    corpus = f'<prop type="corpus">{pair.corpus.translate(_MARKUP)}</prop>\n' if pair.corpus else ""
    variants = "".join(
        f'<tuv xml:lang="{language}"><seg>{text.translate(_MARKUP)}</seg></tuv>\n'
        for language, text in ((source_lang, pair.source), (target_lang, pair.target))
    )
    return f"<tu{given}>\n{corpus}{variants}</tu>\n"

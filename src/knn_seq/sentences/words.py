"""Text to the words that sentences may share."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Scripts written without spaces: Thai, Lao, Myanmar, Khmer, kana and Han (々 and 〇 stand outside of its blocks).
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff"
)


def words(text: str) -> list[str]:
    """The words of a text in any language, in their order, in one spelling of width, accents and case.

    Numbers and single letters are words too.  Where a script has no spaces, each of its characters is a word.
    """
    return _pattern().findall(unicodedata.normalize("NFKC", text).casefold())


@cache
def _pattern() -> re.Pattern[str]:
    # Vowel signs and accents belong to their word, but \w does not match them.
    marks = "".join(mark for mark in map(chr, range(0x300, 0x10000)) if unicodedata.category(mark).startswith("M"))
    return re.compile(rf"(?:[^\W{UNSPACED}]+[{marks}]*)+|(?=\w)[{UNSPACED}][{marks}]*")

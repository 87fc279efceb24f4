"""Language codes as clients write them, their names, and which language a text is in."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from typing import Any, NamedTuple

# English names of the languages that translation models are made for, by ISO 639-1 code.
NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali",
    "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian",
    "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ko": "Korean", "la": "Latin",
    "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi",
    "ms": "Malay", "mt": "Maltese", "my": "Burmese", "nb": "Norwegian Bokmål", "ne": "Nepali", "nl": "Dutch",
    "nn": "Norwegian Nynorsk", "pa": "Punjabi", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili",
    "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "uz": "Uzbek", "vi": "Vietnamese", "xh": "Xhosa", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip
ALIASES = {"iw": "he", "in": "id", "no": "nb", "fil": "tl", "cmn": "zh", "zht": "zh", "por": "pt", "eng": "en"}
THREE_LETTERS = {
    "deu": "de", "fra": "fr", "spa": "es", "ita": "it", "nld": "nl", "rus": "ru", "zho": "zh", "jpn": "ja", "kor": "ko",
    "pol": "pl", "ukr": "uk", "ces": "cs", "swe": "sv", "dan": "da", "fin": "fi", "tur": "tr", "ara": "ar", "heb": "he",
    "hin": "hi", "ell": "el", "ron": "ro", "hun": "hu", "bul": "bg", "cat": "ca", "vie": "vi", "ind": "id", "tha": "th",
}  # fmt: skip


class Detection(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float  # 0 to 100, as LibreTranslate has it


def language_code(code: str) -> str:
    """The plain code of a language: "pt" of "pt-BR", "PT_br", "por_Latn"; other words as they are, in lower case."""
    first = re.split(r"[-_@.]", code.strip().lower())[0]
    return ALIASES.get(first) or THREE_LETTERS.get(first) or first


def language_name(code: str) -> str:
    """The English name of a language, or its code."""
    return NAMES.get(language_code(code), code)


def detect(text: str, languages: Collection[str]) -> list[Detection]:
    """The languages that a text may be in, most likely first.

    Args:
        text: The text.
        languages: The codes to choose from.
    """
    known = sorted({language_code(code) for code in languages})
    if not text.strip() or not known:
        return []
    found = [Detection(language, round(100 * float(share), 1)) for language, share in _identifier().rank(text)]
    offered = sorted((each for each in found if each.language in known), key=lambda each: -each.confidence)
    likely = [each for each in offered if each.confidence > 1]
    return likely or offered[:1] or [Detection(known[0], 0.0)]


@functools.cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

"""The languages that Snowball has a stemmer for."""

from __future__ import annotations

import re

_ALGORITHMS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nb": "norwegian",
    "ne": "nepali",
    "nl": "dutch",
    "nn": "norwegian",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}


def algorithm_of(language: str | None) -> str | None:
    """The name of a language's stemmer, by its code or its name; None: it has none."""
    if not language:
        return None
    name = language.lower()
    # "eng_Latn" and "en-US" begin with their language; three letters are cut to two where that is the same language.
    code = re.split(r"[-_]", name)[0]
    return _ALGORITHMS.get(code) or _ALGORITHMS.get(_THREE_LETTERS.get(code, "")) or (name if name in _NAMES else None)


_NAMES = frozenset(_ALGORITHMS.values())
_THREE_LETTERS = {
    "arb": "ar", "cat": "ca", "ces": "cs", "dan": "da", "deu": "de", "ell": "el", "eng": "en", "spa": "es",
    "est": "et", "eus": "eu", "pes": "fa", "fin": "fi", "fra": "fr", "gle": "ga", "hin": "hi", "hun": "hu",
    "hye": "hy", "ind": "id", "ita": "it", "lit": "lt", "nob": "nb", "npi": "ne", "nld": "nl", "nno": "nn",
    "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "srp": "sr", "swe": "sv", "tam": "ta", "tur": "tr",
}  # fmt: skip


def installed(algorithm: str | None) -> str | None:
    """A stemmer that the installed library has; older ones know fewer languages."""
    import snowballstemmer

    return algorithm if algorithm in snowballstemmer.algorithms() else None

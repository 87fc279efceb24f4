"""Which of the languages of a file is meant by a language code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from knn_seq.registry import Option

LANGUAGE_OPTIONS = {
    "source_lang": Option(None, "the language to translate from: pt is also pt-BR", str),
    "target_lang": Option(None, "the language to translate to", str),
}

# The country that a language without one is most often written for, where it is not the language's own code.
COUNTRIES = {
    **{"ar": "sa", "bn": "bd", "cs": "cz", "da": "dk", "el": "gr", "en": "us", "et": "ee", "fa": "ir", "he": "il"},
    **{"hi": "in", "ja": "jp", "ko": "kr", "nb": "no", "pt": "br", "sl": "si", "sv": "se", "uk": "ua", "vi": "vn"},
    **{"zh": "cn"},
}
# Two letters of ISO 639-1 and three of 639-2 or 639-3, of languages that translation models often have.
THREE_LETTERS = (
    "af afr, ar ara, ar arb, bg bul, bn ben, ca cat, cs ces, cs cze, cy cym, da dan, de deu, de ger, el ell, el gre, "
    "en eng, es spa, et est, eu eus, fa fas, fa pes, fi fin, fr fra, fr fre, ga gle, gl glg, he heb, hi hin, hr hrv, "
    "hu hun, hy hye, id ind, is isl, it ita, ja jpn, ka kat, kk kaz, ko kor, lt lit, lv lav, lv lvs, mk mkd, ms msa, "
    "ms zsm, mt mlt, nb nob, nl nld, nl dut, nn nno, no nor, pl pol, pt por, ro ron, ro rum, ru rus, sk slk, sl slv, "
    "sq sqi, sr srp, sv swe, sw swa, sw swh, ta tam, te tel, th tha, tr tur, uk ukr, ur urd, uz uzn, vi vie, zh zho, "
    "zh chi"
)
_TWO_LETTERS = {three: two for two, three in (pair.split() for pair in THREE_LETTERS.split(", "))}
_SCRIPTS = {"hans": "-cn", "hant": "-tw"}


def normalise_language(code: str) -> str:
    """ "pt_BR" and "PT-br" as "pt-br", "por" as "pt"."""
    primary, dash, rest = code.strip().lower().replace("_", "-").partition("-")
    return _TWO_LETTERS.get(primary, primary) + dash + rest


def model_language(code: str | None) -> str | None:
    """A model's code for a language (pt, por_Latn, pt_XX) as files have them; None for what is no code."""
    if code is None or not re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*", code):
        return None
    primary, *rest = normalise_language(code).split("-")
    if not rest or rest[0] == "xx":
        return primary
    return primary + (_SCRIPTS.get(rest[0], "") if len(rest[0]) == 4 else f"-{rest[0]}")


@lru_cache(1 << 12)
def language_rank(wanted: str, language: str) -> int | None:
    """How well a file's language fits the wanted one: 0 is best, None not at all.

    "pt" is fitted by pt, then by pt-BR, the most frequent one, then by any other pt-*; "pt-BR" by pt-BR, then by pt.
    Case does not matter.
    """
    wanted, language = normalise_language(wanted), normalise_language(language)
    if wanted == language:
        return 0
    if language.startswith(f"{wanted}-"):
        return 1 if language == f"{wanted}-{COUNTRIES.get(wanted, wanted)}" else 2
    return 1 if wanted.startswith(f"{language}-") else None


def best_language(wanted: str, languages: Iterable[str]) -> str | None:
    """The one that fits best, the first of equals; None: none does."""
    ranked = [(rank, language) for language in languages if (rank := language_rank(wanted, language)) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None

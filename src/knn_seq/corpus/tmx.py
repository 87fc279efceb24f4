from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.dates import iso_date
from knn_seq.corpus.inline_codes import plain_text
from knn_seq.corpus.languages import LANGUAGE_OPTIONS, best_language, language_rank, model_language
from knn_seq.corpus.pair import MISSING_LANGUAGE, TOO_LONG, BadPair, SentencePair, make_pair
from knn_seq.corpus.xml_stream import Element, read_elements
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.registry import Option

UNITS_LOOKED_AT = 1000  # to see which languages a file has


@CORPUS_FORMATS.register("tmx")
class TmxReader(CorpusReader):
    """A translation memory in TMX, as a stream.

    The languages are those of the options, else those of the model that it is bound to, else, if it has just two, from
    the source language of its header to the other.
    """

    suffixes = (".tmx",)
    options: ClassVar[Mapping[str, Option]] = LANGUAGE_OPTIONS
    preferred: tuple[str | None, str | None] = (None, None)

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Every translation unit but for the first `start`."""
        for number, unit in enumerate(islice(self._units(), start, None), start + 1):
            yield self._pair(number, unit)

    def prefer_languages(self, source: str | None, target: str | None) -> None:
        """Read these, where no others are given."""
        self.preferred = model_language(source), model_language(target)
        vars(self).pop("languages", None)

    def inferred(self) -> dict[str, Any]:
        """The languages."""
        source, target = self.languages
        return {"source_lang": source, "target_lang": target}

    @cached_property
    def languages(self) -> tuple[str, str]:
        """Source and target; an `InvalidSetting` names those there are, if the file does not tell which are meant."""
        given = self.option_values["source_lang"], self.option_values["target_lang"]
        if all(given):
            return given
        there, srclang = self._languages_there()
        if not there:
            return given[0] or "", given[1] or ""
        sides = [one or self._of_model(hint, there) for one, hint in zip(given, self.preferred, strict=True)]
        if len(there) == 2:
            if sides == [None, None]:
                sides[0] = best_language(srclang, there)
            matches = [side and best_language(side, there) for side in sides]
            if matches[0] and not sides[1]:
                sides[1] = next(language for language in there if language != matches[0])
            elif matches[1] and not sides[0]:
                sides[0] = next(language for language in there if language != matches[1])
        source, target = sides
        if not source or not target:
            raise self._choose(there)
        return source, target

    def _of_model(self, language: str | None, there: list[str]) -> str | None:
        if language is not None and best_language(language, there) is None:
            raise self._choose(there, f"the model's {language} is not among them; ")
        return language

    def _choose(self, there: list[str], why: str = "") -> InvalidSetting:
        example = f"source_lang={there[0]},target_lang={there[-1] if len(there) > 1 else 'en'}"
        return InvalidSetting(
            f"The languages of {self.paths[0]} are {', '.join(there)}: {why}give the corpus options source_lang and "
            f"target_lang (--corpus-option {example})."
        )

    def _languages_there(self) -> tuple[list[str], str]:
        """Those of the first units, in their order, and what the header says is the source language."""
        there: dict[str, str] = {}
        units = 0
        srclang = ""
        for element in self._elements():
            if element.name == "header":
                srclang = element.attributes.get("srclang", "")
            elif element.name == "tu":
                units += 1
                for variant in element.children("tuv"):
                    there.setdefault(_language(variant).lower(), _language(variant))
                if units == UNITS_LOOKED_AT:
                    break
        return [language for language in there.values() if language], srclang

    def _units(self) -> Iterator[Element]:
        return (element for element in self._elements() if element.name == "tu")

    def _elements(self) -> Iterator[Element]:
        elements = read_elements(self.paths[0], complete=("tu",))
        root = next(elements, None)
        if root is None or root.name != "tmx":
            raise DamagedFile(f"{self.paths[0]} is no TMX file: its first element is {root.name if root else 'none'}.")
        return elements

    def _pair(self, number: int, unit: Element) -> SentencePair | BadPair:
        id = unit.attributes.get("tuid", "").strip()
        place = f"unit {number}" + (f" (tuid {id})" if id else "")
        if unit.too_long:
            return BadPair(place, TOO_LONG)
        variants = list(unit.children("tuv"))
        source, target = (_variant(language, variants) for language in self.languages)
        if source is None or target is None or source is target:
            return BadPair(place, MISSING_LANGUAGE)
        texts = plain_text(source.child("seg")), plain_text(target.child("seg"))
        corpus = next((prop.text() for prop in unit.children("prop") if prop.attributes.get("type") == "corpus"), "")
        return make_pair(*texts, place, id, corpus.strip(), _date([unit, source, target]))


def _language(variant: Element) -> str:
    return (variant.attributes.get("xml:lang") or variant.attributes.get("lang") or "").strip()


def _variant(wanted: str, variants: list[Element]) -> Element | None:
    ranked = [(rank, one) for one in variants if (rank := language_rank(wanted, _language(one))) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _date(elements: list[Element]) -> str | None:
    """When the unit was last changed, or else when it was made."""
    for name in ("changedate", "creationdate"):
        dates = [date for element in elements if (date := iso_date(element.attributes.get(name)))]
        if dates:
            return max(dates)
    return None

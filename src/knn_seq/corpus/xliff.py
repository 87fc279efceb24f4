from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.dates import iso_date
from knn_seq.corpus.inline_codes import plain_text
from knn_seq.corpus.languages import LANGUAGE_OPTIONS, language_rank, model_language
from knn_seq.corpus.pair import MISSING_LANGUAGE, NOT_TRANSLATED, TOO_LONG, BadPair, SentencePair, make_pair
from knn_seq.corpus.xml_stream import Element, read_elements
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.registry import Option

STATES = ("initial", "translated", "reviewed", "final")  # those of XLIFF 2; each holds more than the one before
# What other names of states stand for; what is named nowhere here is initial.
OTHER_NAMES = {
    "signed-off": "reviewed",  # XLIFF 1.2
    **{"Translated": "translated", "ApprovedTranslation": "reviewed", "ApprovedSignOff": "final"},  # SDL
    **{"ManuallyConfirmed": "translated", "Reviewer1Confirmed": "reviewed", "Proofread": "final"},  # memoQ
}
SDL = "{http://sdl.com/FileTypes/SdlXliff/1.0}"
MEMOQ_STATUS = "{MQXliff}status"
NOT_FOR_TRANSLATION = "not for translation"


class _File(NamedTuple):
    """A document whose text the units behind it hold."""

    name: str
    source_lang: str | None
    target_lang: str | None
    date: str | None


class _Segment(NamedTuple):
    """A text with its translation."""

    id: str
    source: Element | None
    target: Element | None
    state: str


@CORPUS_FORMATS.register("xliff")
class XliffReader(CorpusReader):
    """Translated segments of XLIFF 1.2 or 2, as a stream.

    Languages that are given, or those of the model that it is bound to, choose among the documents of a file, and
    exchange source and target where they fit that way.
    """

    suffixes = (".xlf", ".xliff", ".sdlxliff", ".mqxliff")
    options: ClassVar[Mapping[str, Option]] = {
        **LANGUAGE_OPTIONS,
        "state": Option("translated", f"the least that a segment has to be: {', '.join(STATES)}", str),
    }
    preferred: tuple[str | None, str | None] = (None, None)

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Sequence[int | str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(paths, columns, options)
        state = self.option_values["state"]
        if state not in STATES:
            raise InvalidSetting(f"The corpus option state is one of {', '.join(STATES)}, not {state}.")
        self._accepted = STATES[STATES.index(state) :]

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Every segment but for the first `start`."""
        return islice(self._pairs(), start, None)

    def prefer_languages(self, source: str | None, target: str | None) -> None:
        """Choose documents by these, where no others are given."""
        self.preferred = model_language(source), model_language(target)

    def inferred(self) -> dict[str, Any]:
        """The languages that choose documents."""
        return {"preferred": list(self.preferred)}

    def _pairs(self) -> Iterator[SentencePair | BadPair]:
        elements = read_elements(self.paths[0], complete=("trans-unit", "unit"))
        root = next(elements, None)
        if root is None or root.name != "xliff":
            raise DamagedFile(
                f"{self.paths[0]} is no XLIFF file: its first element is {root.name if root else 'none'}."
            )
        document = _document(root, root)
        number = 0
        for element in elements:
            if element.name == "file":
                document = _document(root, element)
            elif element.name in ("trans-unit", "unit"):
                number += 1
                yield from self._pairs_of(number, element, document)

    def _pairs_of(self, number: int, unit: Element, document: _File) -> Iterator[SentencePair | BadPair]:
        unit_id = "/".join(filter(None, (document.name, unit.attributes.get("id", ""))))
        place = f"unit {number} (id {unit_id})"
        reversed_ = self._reversed(document)
        if unit.too_long:
            yield BadPair(place, TOO_LONG)
        elif unit.attributes.get("translate") == "no":
            yield BadPair(place, NOT_FOR_TRANSLATION)
        elif reversed_ is None:
            yield BadPair(place, MISSING_LANGUAGE)
        else:
            segments = list(_segments_1(unit) if unit.name == "trans-unit" else _segments_2(unit))
            for segment in segments:
                id = f"{unit_id}/{segment.id}" if len(segments) > 1 else unit_id
                yield self._pair(segment, id, f"unit {number} (id {id})", document.date, reversed_)

    def _pair(
        self, segment: _Segment, id: str, place: str, date: str | None, reversed_: bool
    ) -> SentencePair | BadPair:
        if OTHER_NAMES.get(segment.state, segment.state) not in self._accepted and self._accepted != STATES:
            return BadPair(place, NOT_TRANSLATED)
        texts = plain_text(segment.source), plain_text(segment.target)
        source, target = reversed(texts) if reversed_ else texts
        return make_pair(source, target, place, id, date=date)

    def _reversed(self, document: _File) -> bool | None:
        """Whether source and target are to be exchanged; None: the document is in other languages."""
        options = self.option_values["source_lang"], self.option_values["target_lang"]
        wanted = [given or hint for given, hint in zip(options, self.preferred, strict=True)]
        there = document.source_lang, document.target_lang
        if all(map(_fits, wanted, there)):
            return False
        return True if all(map(_fits, wanted, reversed(there))) else None


def _document(root: Element, file: Element) -> _File:
    """XLIFF 2 has the languages at the root, 1.2 at each document."""
    own = file.attributes
    return _File(
        name=own.get("original") or own.get("id") or "",
        source_lang=own.get("source-language") or root.attributes.get("srcLang"),
        target_lang=own.get("target-language") or root.attributes.get("trgLang"),
        date=iso_date(own.get("date")),
    )


def _fits(wanted: str | None, there: str | None) -> bool:
    return not wanted or not there or language_rank(wanted, there) is not None


def _segments_1(unit: Element) -> Iterator[_Segment]:
    """Of a unit of XLIFF 1.2: those that are marked on both sides, or else the complete text."""
    source, target = unit.child("source"), unit.child("target")
    state = _state_1(unit, target)
    segmented = unit.child("seg-source")
    sources = {} if segmented is None else _marked(segmented)
    targets = {} if target is None else _marked(target)
    if not sources or not targets:
        only = next(iter(_sdl_states(unit).values()), state)
        yield _Segment("", source or segmented, target, only)
        return
    states = _sdl_states(unit)
    for id, part in sources.items():
        yield _Segment(id, part, targets.get(id), states.get(id, state))


def _segments_2(unit: Element) -> Iterator[_Segment]:
    """Of a unit of XLIFF 2; the standard says that a segment without a state is initial."""
    for number, segment in enumerate(unit.children("segment"), 1):
        id, state = segment.attributes.get("id", str(number)), segment.attributes.get("state", STATES[0])
        yield _Segment(id, segment.child("source"), segment.child("target"), state)


def _state_1(unit: Element, target: Element | None) -> str:
    """Of a unit of XLIFF 1.2, whose standard leaves open what no state means: a text that is there is a translation."""
    approved = unit.attributes.get("approved")
    if approved == "yes":
        return "reviewed"
    stated = None if target is None else target.attributes.get("state")
    stated = stated or unit.attributes.get(MEMOQ_STATUS)
    if stated is None:
        return STATES[0] if approved == "no" or target is None else "translated"
    return stated


def _sdl_states(unit: Element) -> dict[str, str]:
    """Of each segment, as Trados notes them beside the text."""
    definitions = unit.child(f"{SDL}seg-defs")
    if definitions is None:
        return {}
    return {
        seg.attributes.get("id", ""): seg.attributes.get("conf", STATES[0]) for seg in definitions.children(f"{SDL}seg")
    }


def _marked(element: Element) -> dict[str, Element]:
    marks = (mark for mark in element.descendants("mrk") if mark.attributes.get("mtype") == "seg")
    return {mark.attributes.get("mid", ""): mark for mark in marks}

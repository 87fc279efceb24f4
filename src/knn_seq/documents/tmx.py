from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from knn_seq.documents.base import DOCUMENT_FORMATS, Filled, Segment
from knn_seq.documents.bilingual import BilingualDocument, children, closing, is_empty, local, spaces_before
from knn_seq.documents.tokens import Token, xml_tokens
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.protect import Role, join
from knn_seq.registry import Option


@DOCUMENT_FORMATS.register("tmx")
class TmxDocument(BilingualDocument):
    """TMX: units without the target language get it."""

    suffixes = (".tmx",)
    options = {
        "source_lang": Option(None, "the language to translate from; without it the one that the file names", str),
        "target_lang": Option(None, "the language to fill", str),
    }

    def __init__(self, data: bytes, name: str, options: Mapping[str, Any] | None = None) -> None:
        if not (options or {}).get("target_lang"):
            raise InvalidSetting(
                f"{name} has many languages: say which one to fill (--document-option target_lang=en)."
            )
        super().__init__(data, name, options)

    def _find(self) -> list[Segment]:
        tokens = xml_tokens(self.text, self.name)
        opened = [token for token in tokens if token.kind == "open"]
        if local(opened[0].name) != "tmx":
            raise DamagedFile(f"{self.name} is not TMX: it begins with <{opened[0].name}>.")
        header = next((token.attributes for token in opened if local(token.name) == "header"), {})
        named = header.get("srclang")
        source = self.option_values["source_lang"] or (named if named and named != "*all*" else None)
        if source is None:
            raise InvalidSetting(
                f"{self.name} does not say which language to translate from: give --document-option source_lang=pt."
            )
        self._insertions: dict[int, str] = {}
        segments = []
        for place, token in enumerate(tokens):
            if token.kind == "open" and local(token.name) == "tu":
                segments += self._unit(tokens, place, source)
        return segments

    def _unit(self, tokens: Sequence[Token], place: int, source: str) -> list[Segment]:
        variants = [
            (first, last)
            for first, last in children(tokens, place, closing(tokens, place))
            if local(tokens[first].name) == "tuv"
        ]
        from_, to = (self._of_language(tokens, variants, lang) for lang in (source, self.option_values["target_lang"]))
        if from_ is None or (text := self._text(tokens, from_)) is None:
            return []
        content = self._content(tokens, *text)
        if is_empty(content):
            return []
        key = tokens[place].attributes.get("tuid") or f"unit at character {tokens[place].start}"
        if to is None:
            start = tokens[from_[1]].end
            self._insertions[start] = spaces_before(self.text, tokens[from_[0]].start)
            return [Segment(content, key, start=start, end=start)]
        translated = self._text(tokens, to)
        if translated is None:
            return []
        existing = self._content(tokens, *translated)
        first, last = (tokens[number] for number in translated)
        return [Segment(content, key, join(existing), is_empty(existing), first.start, last.end)]

    def _of_language(
        self, tokens: Sequence[Token], variants: Sequence[tuple[int, int]], language: str
    ) -> tuple[int, int] | None:
        """The variant of a language, or else of another region's."""
        spoken: dict[str, tuple[int, int]] = {}
        for first, last in variants:
            named = tokens[first].attributes.get("xml:lang") or tokens[first].attributes.get("lang") or ""
            spoken.setdefault(named.lower().replace("_", "-"), (first, last))
        wanted = language.lower().replace("_", "-")
        related = (place for named, place in spoken.items() if named.split("-")[0] == wanted.split("-")[0])
        return spoken.get(wanted) or next(related, None)

    def _text(self, tokens: Sequence[Token], variant: tuple[int, int]) -> tuple[int, int] | None:
        return next((part for part in children(tokens, *variant) if local(tokens[part[0]].name) == "seg"), None)

    def _replacement(self, segment: Segment, filled: Filled) -> str:
        written = f"<seg>{self._written(segment, filled.content)}</seg>"
        if segment.start not in self._insertions:
            return written
        language = escape(self.option_values["target_lang"])
        origin = f'<prop type="x-origin">{escape(filled.origin)}</prop>' if filled.origin else ""
        return (
            f'{self._insertions[segment.start]}<tuv xml:lang="{language}" creationid="knn-seq">{origin}{written}</tuv>'
        )

    def _role(self, token: Token) -> tuple[Role, str] | None:
        name, number = local(token.name), token.attributes.get("i") or ""
        if name == "hi":
            return Role.OPEN, "hi"
        if name in ("bpt", "ept"):
            return (Role.OPEN if name == "bpt" else Role.CLOSE), f"pt{number}"
        return (Role.WORD, "") if name == "ph" else None

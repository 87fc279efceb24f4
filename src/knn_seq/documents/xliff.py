from __future__ import annotations

from dataclasses import dataclass

from knn_seq.documents.base import DOCUMENT_FORMATS, Filled, Segment
from knn_seq.documents.bilingual import (
    BilingualDocument,
    children,
    closing,
    is_empty,
    local,
    origin_word,
    spaces_before,
    with_attributes,
)
from knn_seq.documents.tokens import Token, xml_tokens
from knn_seq.errors import DamagedFile
from knn_seq.protect import Role, join

UNFINISHED = frozenset({"new", "initial", "needs-translation", "needs-adaptation", "needs-l10n"})
BREAKS = frozenset({"lb", "pb", "image", "x-br", "x-img", "x-html-br", "x-html-img"})


@dataclass(frozen=True)
class _Unit:
    """Where the parts of a segment stand."""

    segment: Token | None  # its opening tag, which has the state in XLIFF 2
    source: tuple[int, int]
    target: tuple[int, int] | None
    target_tag: Token | None
    indent: str


@DOCUMENT_FORMATS.register("xliff")
class XliffDocument(BilingualDocument):
    """XLIFF 1.2 and 2.x.  A target that is there stays, unless its state says that it is none yet."""

    suffixes = (".xlf", ".xliff", ".sdlxliff", ".mqxliff")

    def _find(self) -> list[Segment]:
        tokens = xml_tokens(self.text, self.name)
        roots = [token for token in tokens if token.kind == "open"]
        if local(roots[0].name) != "xliff":
            raise DamagedFile(f"{self.name} is not XLIFF: it begins with <{roots[0].name}>.")
        self._second = (roots[0].attributes.get("version") or "").startswith("2")
        self._units: dict[int, _Unit] = {}
        segments = []
        unit: Token | None = None
        untouched: list[int] = []  # the ends of elements that say translate="no"
        for place, token in enumerate(tokens):
            untouched = [end for end in untouched if end > place]
            if token.kind != "open":
                continue
            if token.attributes.get("translate") == "no":
                untouched.append(closing(tokens, place))
            name = local(token.name)
            if name in ("trans-unit", "unit"):
                unit = token
            if unit is not None and name == ("segment" if self._second else "trans-unit"):
                segments += self._segment(tokens, place, unit, not untouched)
        return segments

    def _segment(self, tokens: list[Token], place: int, unit: Token, wanted: bool) -> list[Segment]:
        parts = {
            local(tokens[first].name): (first, last) for first, last in children(tokens, place, closing(tokens, place))
        }
        if "source" not in parts:
            return []
        first, last = parts["source"]
        content = self._content(tokens, first, last)
        if is_empty(content):
            return []
        behind = parts.get("seg-source", parts["source"])[1]
        indent = spaces_before(self.text, tokens[first].start)
        target, tag, existing, state = None, None, None, tokens[place].attributes.get("state")
        if "target" in parts:
            begin, end = parts["target"]
            target, tag = (tokens[begin].start, tokens[end].end), tokens[begin]
            existing = self._content(tokens, begin, end)
            state = state or tag.attributes.get("state")
        approved = unit.attributes.get("approved") == "yes" or state is None or state not in UNFINISHED
        finished = existing is not None and not is_empty(existing) and approved
        start = tokens[place].start
        self._units[start] = _Unit(
            tokens[place] if self._second else None, (tokens[first].start, tokens[behind].end), target, tag, indent
        )
        text = None if existing is None else join(existing)
        finish = max(tokens[behind].end, target[1] if target else 0)
        return [Segment(content, unit.attributes.get("id") or "", text, wanted and not finished, start, finish)]

    def _replacement(self, segment: Segment, filled: Filled) -> str:
        unit = self._units[segment.start]
        written = self._written(segment, filled.content)
        tag = "<target>" if unit.target_tag is None else self.text[unit.target_tag.start : unit.target_tag.end]
        tag = tag.replace("/>", ">") if unit.target_tag is not None else tag
        prefix = "" if unit.target_tag is None else unit.target_tag.name.rpartition(":")[0]
        word = origin_word(filled.origin) or "model"
        if not self._second:
            state = "translated" if filled.final else "needs-review-translation"
            qualifier = "exact-match" if filled.final else f"x-{word}"
            tag = with_attributes(tag, state=state, **{"state-qualifier": qualifier})
        closing_tag = f"</{prefix}:target>" if prefix else "</target>"
        target = f"{tag}{written}{closing_tag}"
        before = self.text[segment.start : unit.source[1]]
        if unit.segment is not None:
            opened = self.text[unit.segment.start : unit.segment.end]
            marked = with_attributes(opened, state="translated", subState=f"knn-seq:{word}")
            before = marked + self.text[unit.segment.end : unit.source[1]]
        if unit.target is None:
            return f"{before}{unit.indent}{target}"
        if unit.target[0] < unit.source[1]:  # a target before its source
            return self.text[segment.start : segment.end]
        return f"{before}{self.text[unit.source[1] : unit.target[0]]}{target}"

    def _role(self, token: Token) -> tuple[Role, str] | None:
        name, attributes = local(token.name), token.attributes
        identity = attributes.get("rid") or attributes.get("startRef") or attributes.get("id") or ""
        if name in ("g", "mrk", "pc"):
            return Role.OPEN, name
        if name in ("bpt", "bx", "sc", "sm"):
            return Role.OPEN, f"{name[0]}{identity}"
        if name in ("ept", "ex", "ec", "em"):
            return Role.CLOSE, f"{'b' if name[1] in 'px' else 's'}{identity}"
        if name in ("x", "ph"):
            return (Role.POINT if attributes.get("ctype") in BREAKS else Role.WORD), ""
        return None

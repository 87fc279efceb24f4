from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from knn_seq.documents.base import DOCUMENT_FORMATS, Segment
from knn_seq.documents.blocks import Atom, Block
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.documents.text import SOURCE_LANG
from knn_seq.errors import DamagedFile, MissingLibrary
from knn_seq.protect import Role
from knn_seq.protect.patterns import VOID

PUNCTUATION = r"!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~"

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_INLINE = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<word><(?:[A-Za-z][A-Za-z0-9+.-]*:[^\s<>]*|[\w.+-]+@[\w.-]+)>|\[\^[^\]\s]+\]|\$[^$\n ][^$\n]*\$)"
    r"|(?P<comment><!--.*?-->)|<(?P<close>/?)(?P<tag>[A-Za-z][\w-]*)(?:\s[^<>]*)?>"
    rf"|\\(?P<escaped>[{PUNCTUATION}])"
    r"|(?P<hard>(?:[ ]{2,}|\\)\n)"
    r"|(?P<image>!\[[^\]\[]*\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\]))"
    r"|(?P<task>\A\[[ xX]\][ \t])"
    r"|(?P<bracket>\[)"
    r"|(?P<tail>\](?:\((?:<[^<>\n]*>|[^()\s<]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)|\[[^\]\[]+\]))"
    r"|(?P<end>\](?:\[\])?)"
    r"|(?P<emphasis>\*+|_+|~~)",
    re.DOTALL,
)
_SPECIAL = re.compile(r"[\\`*\[\]<]|(?<!\w)_|_(?!\w)")
_BLOCK_START = re.compile(
    r"(?:#{1,6}(?=\s|$)|[-+*](?=\s|$)|\d{1,9}(?=[.)](?:\s|$))|>|~{3}|`{3}|={1,}\s*$|-{2,}\s*$|\|)"
)


class _Mark(NamedTuple):
    """A piece of markup in a text."""

    start: int
    end: int
    role: Role
    name: str


@DOCUMENT_FORMATS.register("markdown")
class MarkdownDocument(SplicedDocument):
    """Markdown: paragraphs, headings, items of lists, cells of tables; code and addresses stay."""

    suffixes = (".md", ".markdown", ".mdown")
    options = {"source_lang": SOURCE_LANG}

    def _find(self) -> list[Segment]:
        front = _FRONT_MATTER.match(self.text)
        skipped = front.end() if front else 0
        starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        first = self.text.count("\n", 0, skipped)
        tokens, references = self._parsed(self.text[skipped:])
        segments: list[Segment] = []
        cursor = skipped
        self._line_starts: set[int] = set()
        for token in tokens:
            if token.type != "inline" or not token.map:
                continue
            lines = self._places(token, starts, first, cursor)
            if lines is None:
                continue
            self._require_short(len(token.content), f"line {first + token.map[0] + 1}")
            cursor = lines[-1][0] + len(lines[-1][1])
            self._line_starts.update(place for place, _ in lines)
            block = Block()
            block.atoms += self._atoms(lines, references)
            segments += block.segments(f"line {first + token.map[0] + 1}", self.option_values["source_lang"])
        return segments

    def _parsed(self, text: str) -> tuple[list[Any], frozenset[str]]:
        try:
            from markdown_it import MarkdownIt
        except ImportError as error:
            raise MissingLibrary("The library markdown-it-py is missing: pip install knn-seq[documents].") from error
        environment: dict[str, Any] = {}
        parser = MarkdownIt("commonmark").enable("table")
        parser.disable("inline")  # only blocks are wanted: what is in them is read here, with its place
        try:
            tokens = parser.parse(text, environment)
        except RecursionError as error:
            raise DamagedFile(f"{self.name} is nested too deeply.") from error
        return tokens, frozenset(environment.get("references", {}))

    def _places(self, token: Any, starts: list[int], first: int, cursor: int) -> list[tuple[int, str]] | None:
        """Where each line of a block's text stands; None if it does not stand there as it is read."""
        places = []
        for number, line in enumerate(token.content.split("\n"), first + token.map[0]):
            if number >= len(starts):
                return None
            end = starts[number + 1] if number + 1 < len(starts) else len(self.text)
            whole = self.text[starts[number] : end].rstrip("\r\n")
            begin = max(cursor - starts[number], 0)
            if whole.rstrip().endswith(line.rstrip()) and len(whole.rstrip()) - len(line.rstrip()) >= begin:
                place = len(whole.rstrip()) - len(line.rstrip())
                if token.map[1] - token.map[0] == 1:  # a heading, a cell: the first that fits
                    place = whole.find(line, begin) if line in whole[begin:] else place
            else:
                place = whole.find(line, begin)
            if place < 0:
                return None
            places.append((starts[number] + place, line if line in whole else line.rstrip()))
        return places

    def _atoms(self, lines: list[tuple[int, str]], references: frozenset[str]) -> Iterator[Atom]:
        text = "\n".join(line for _, line in lines)
        places: list[tuple[int, int]] = []  # of each letter
        for (place, line), following in zip(lines, [*lines[1:], None], strict=True):
            places += [(at, at + 1) for at in range(place, place + len(line))]
            if following is not None:
                places.append((place + len(line), following[0]))  # the line's end, and what begins the next: "> "
        marks = {mark.start: mark for mark in _marks(text, references)}
        escapes = {match.start(): match for match in _INLINE.finditer(text) if match["escaped"]}
        place = 0
        while place < len(text):
            if place in marks:
                mark = marks[place]
                block = Block()
                start, end = places[mark.start][0], places[mark.end - 1][1]
                block.add_tag(self.text[start:end], mark.role, start, mark.name)
                yield block.atoms[0]
                place = mark.end
            elif place in escapes and place + 1 not in marks:
                yield Atom(text[place + 1], places[place][0], places[place + 1][1])
                place += 2
            else:
                yield Atom(text[place], *places[place])
                place += 1

    def _escaped(self, text: str, segment: Segment) -> str:
        """Text in which no letter is markup.  A letter that the source has as text, and does not escape, stays."""
        raw = self.text[segment.start : segment.end]
        plain = "".join(part for part in segment.content if isinstance(part, str))

        def escaped(match: re.Match[str]) -> str:
            letter = match[0]
            return letter if letter in plain and letter != "\\" and f"\\{letter}" not in raw else f"\\{letter}"

        text = _SPECIAL.sub(escaped, text)
        if segment.start in self._line_starts and (start := _BLOCK_START.match(text)):
            place = start.end() if start[0].isdigit() else 0
            text = f"{text[:place]}\\{text[place:]}"
        return text


def _marks(text: str, references: frozenset[str]) -> Iterator[_Mark]:
    """The markup in the text of a block, what nests in pairs."""
    brackets: list[int] = []
    opened: list[tuple[str, int]] = []
    for match in _INLINE.finditer(text):
        start, end = match.span()
        kind = match.lastgroup if match.lastgroup != "ticks" else "code"
        if match["code"] or match["word"] or match["image"]:
            yield _Mark(start, end, Role.WORD, "")
        elif match["comment"] or match["hard"] or match["task"]:
            yield _Mark(start, end, Role.POINT, "")
        elif match["tag"]:
            role = Role.CLOSE if match["close"] else Role.OPEN
            single = match[0].endswith("/>") or match["tag"].lower() in VOID
            yield _Mark(start, end, Role.POINT if single else role, match["tag"].lower())
        elif match["bracket"]:
            brackets.append(start)
        elif kind in ("tail", "end") and brackets:
            begin = brackets.pop()
            label = " ".join(text[begin + 1 : start].split()).upper()
            if match["tail"]:
                yield _Mark(begin, begin + 1, Role.OPEN, f"link {begin}")
                yield _Mark(start, end, Role.CLOSE, f"link {begin}")
            elif label in references:  # its text is the name of its address
                yield _Mark(begin, end, Role.WORD, "")
        elif match["emphasis"]:
            yield from _emphasis(text, match, opened)


def _emphasis(text: str, match: re.Match[str], opened: list[tuple[str, int]]) -> Iterator[_Mark]:
    """A run of * or _ that opens or closes a stretch of text; the two are known when it is closed."""
    run, (start, end) = match[0], match.span()
    before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
    opens, closes = not after.isspace(), not before.isspace()
    if run[0] == "_":
        opens, closes = opens and not before.isalnum(), closes and not after.isalnum()
    known = next((number for number in range(len(opened) - 1, -1, -1) if opened[number][0] == run), None)
    if closes and known is not None:
        begin = opened[known][1]
        del opened[known:]
        yield _Mark(begin, begin + len(run), Role.OPEN, f"{run} {begin}")
        yield _Mark(start, end, Role.CLOSE, f"{run} {begin}")
    elif opens:
        opened.append((run, start))

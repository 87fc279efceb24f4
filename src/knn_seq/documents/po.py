from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from knn_seq.documents.base import DOCUMENT_FORMATS, Filled, Segment
from knn_seq.documents.encoding import Encoding, decode
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.errors import DamagedFile
from knn_seq.protect import join

WIDTH = 79  # of a line, as gettext writes it
MARK = "# knn-seq: "  # begins the comment that says where a translation comes from

_LINE = re.compile(r"[^\n]*\n|[^\n]+$")
_FIELD = re.compile(r"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*(?=\")")
_STRING = re.compile(r"\s*\"((?:[^\"\\\r\n]|\\.)*)\"\s*$")
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\\"'?])|x([0-9A-Fa-f]{1,2})|([0-7]{1,3}))")
_MEANING = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass
class _Entry:
    """A message: its strings with their places, and the places of its comments."""

    start: int
    strings: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)  # from the first quote to the last line's end
    message: int = -1  # where it begins, behind the comments for people
    flags: tuple[int, int] | None = None
    mark: tuple[int, int] | None = None
    fuzzy: bool = False


@DOCUMENT_FORMATS.register("po")
class PoDocument(SplicedDocument):
    """A gettext catalog: messages without a translation, and fuzzy ones, are filled and marked."""

    suffixes = (".po", ".pot")

    def _decode(self, data: bytes) -> tuple[str, Encoding]:
        match = re.search(rb"Content-Type:[^\n]*?charset=([\w.:-]+)", data[:65536])
        declared = match[1].decode("ascii") if match else None
        return decode(data, self.name, None if declared in (None, "CHARSET") else declared)

    def _find(self) -> list[Segment]:
        self._newline = "\r\n" if "\r\n" in self.text else "\n"
        self._entries: list[_Entry] = self._parsed()
        self._owners: dict[int, _Entry] = {}
        segments = []
        for entry in self._entries:
            forms = [name for name in entry.strings if name.startswith("msgstr")]
            translated = any(entry.strings[name] for name in forms)
            for number, name in enumerate(forms):
                singular = "msgid_plural" not in entry.strings or (number == 0 and len(forms) > 1)
                source = entry.strings["msgid" if singular else "msgid_plural"]
                if not source:
                    continue  # the header
                start, end = entry.places[name]
                self._owners[start] = entry
                key = " / ".join(filter(None, [entry.strings.get("msgctxt"), entry.strings["msgid"]]))
                wanted = entry.fuzzy or not translated
                segments.append(Segment((source,), key, entry.strings[name] or None, wanted, start, end))
        return segments

    def _parsed(self) -> list[_Entry]:
        entries: list[_Entry] = []
        entry, name, place = _Entry(0), "", 0
        for number, line in enumerate(_LINE.findall(self.text), 1):
            begin, place = place, place + len(line)
            stripped = line.strip()
            if stripped.startswith("#") or not stripped:
                if "msgstr" in "".join(entry.strings):
                    entries.append(entry)
                    entry = _Entry(begin)
                if not entry.strings and not stripped:
                    entry = _Entry(place)
                name = "" if stripped.startswith("#~") else name
                self._comment(entry, stripped, begin, place)
                continue
            match = _FIELD.match(line)
            if match and (match[1] in ("msgctxt", "msgid")) and "msgstr" in "".join(entry.strings):
                entries.append(entry)
                entry = _Entry(begin)
            name = match[1] if match else name
            string = _STRING.match(line, match.end() if match else 0)
            if string is None or not name or (match and name in entry.strings):
                raise DamagedFile(f"{self.name} is no gettext catalog: line {number} cannot be read.")
            end = place - (len(line) - len(line.rstrip("\r\n")))
            if match:
                entry.message = begin if entry.message < 0 else entry.message
                entry.strings[name] = ""
                entry.places[name] = (begin + match.end(), end)
            entry.strings[name] += _unescaped(string[1])
            entry.places[name] = (entry.places[name][0], end)
        if entry.strings:
            entries.append(entry)
        for each in entries:
            if "msgid" not in each.strings or not any(name.startswith("msgstr") for name in each.strings):
                raise DamagedFile(f"{self.name} is no gettext catalog: a message has no msgid or no msgstr.")
        return entries

    def _comment(self, entry: _Entry, line: str, begin: int, end: int) -> None:
        if line.startswith("#,"):
            entry.flags = (begin, end)
            entry.fuzzy = "fuzzy" in [flag.strip() for flag in line[2:].split(",")]
        elif line.startswith(MARK):
            entry.mark = (begin, end)
        elif line.startswith("#|") and entry.message < 0:
            entry.message = begin

    def filled(self, translations: Sequence[Filled | None]) -> bytes:
        """The catalog with translations, flags and comments that say where they come from."""
        edits: list[tuple[int, int, str]] = []
        by_entry: dict[int, list[Filled]] = {}
        for segment, filled in zip(self._segments, translations, strict=True):
            if filled is not None:
                edits.append((segment.start, segment.end, self._string(join(filled.content), segment)))
                by_entry.setdefault(self._owners[segment.start].start, []).append(filled)
        for entry in self._entries:
            if entry.start in by_entry:
                edits += self._marks(entry, by_entry[entry.start])
        parts, place = [], 0
        for start, end, text in sorted(edits, key=lambda edit: edit[:2]):
            parts += [self.text[place:start], text]
            place = end
        text = "".join([*parts, self.text[place:]])
        try:
            return self.encoding.encode(text)
        except UnicodeEncodeError:
            raise DamagedFile(
                f"{self.name} is written in {self.encoding.name}, which lacks letters of the translation: "
                "convert it to UTF-8 first (msgconv -t UTF-8)."
            ) from None

    def _marks(self, entry: _Entry, filled: Sequence[Filled]) -> list[tuple[int, int, str]]:
        """What is written into the comments of a message that was filled."""
        edits = []
        origins = list(dict.fromkeys(each.origin for each in filled if each.origin))
        if origins:
            place = entry.mark or (entry.start, entry.start)
            edits.append((*place, f"{MARK}{', '.join(origins)}{self._newline}"))
        fuzzy = not all(each.final for each in filled)
        if fuzzy == entry.fuzzy:
            return edits
        if entry.flags is None:
            return [*edits, (entry.message, entry.message, f"#, fuzzy{self._newline}")]
        start, end = entry.flags
        known = [flag.strip() for flag in self.text[start:end].strip()[2:].split(",") if flag.strip()]
        flags = ["fuzzy", *known] if fuzzy else [flag for flag in known if flag != "fuzzy"]
        return [*edits, (start, end, f"#, {', '.join(flags)}{self._newline}" if flags else "")]

    def _string(self, value: str, segment: Segment) -> str:
        """A string as gettext writes it: on one line, or an empty one and then a line each."""
        lines = [line for part in value.splitlines(keepends=True) for line in _wrapped(_escaped(part))] or [""]
        keyword = segment.start - self.text.rfind("\n", 0, segment.start)
        if len(lines) == 1 and keyword + len(lines[0]) + 2 <= WIDTH:
            return f'"{lines[0]}"'
        return self._newline.join(f'"{line}"' for line in ("", *lines))

    def _escaped(self, text: str, segment: Segment) -> str:
        return _escaped(text)


def _unescaped(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        if match[1]:
            return _MEANING.get(match[1], match[1])
        return chr(int(match[2], 16) if match[2] else int(match[3], 8))

    return _ESCAPE.sub(meaning, text)


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, meaning in _MEANING.items():
        text = text.replace(meaning, f"\\{letter}")
    return text


def _wrapped(text: str) -> list[str]:
    """Lines that are not too long, broken behind spaces."""
    lines = [""]
    for word in re.findall(r"\S*\s*", text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > WIDTH - 2:
            lines.append("")
        lines[-1] += word
    return lines

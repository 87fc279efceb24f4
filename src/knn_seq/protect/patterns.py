"""Which pieces of a text are placeholders: directives of printf, variables, entities, markup, addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from knn_seq.errors import InvalidSetting
from knn_seq.protect.content import IN_ORDER, Content, Role, Tag, tidy
from knn_seq.protect.lines import BLOCK

# The first that fits counts.
PATTERNS = {
    "markup": r"<(?:!--.*?--|/?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?)>",
    "url": r"<(?:https?|ftp|file|mailto|git|ssh):[^\s<>]*>|(?:https?|ftp|file|mailto|git|ssh)://[^\s<>\"'{}|\\^`]*[^\s<>\"'{}|\\^`.,;:!?)\]]|www\.[\w-]+(?:\.[\w-]+)+(?:/[\w./?=&%#~+-]*[\w/=&%#~+-])?",
    "e-mail": r"<[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+>|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+",
    "entity": r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});",
    "braces": r"\$?\{\{[^{}\n]*\}\}|[$#%@]?\{(?:[^{}\n]|\{[^{}\n]*\}){0,400}\}",
    "shell": r"\$\([\w.]+\)|\$[A-Za-z_]\w*\$?|\$\d",
    "printf": (
        r"%(?:\(\w+\)|\d+\$|<\w+>)?[-+#0']*(?:\d+|\*(?:\d+\$)?)?(?:\.(?:\d+|\*(?:\d+\$)?)?)?"
        r"(?:hh|h|ll|l|L|q|j|z|t|I64|I32)?[diouxXeEfFgGaAcCsSpn@](?![A-Za-z]{2})|%L?\d{1,2}|%%|%\w+%"
    ),
    "label": r"\[[A-Z]+[0-9]+[A-Z]*\]|@[A-Z][A-Z0-9_]+@|__\w{1,40}?__",
    "escape": r"\\[nrtabfv0\\\"']|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}",
}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
_NAME_ONLY = re.compile(r"<[A-Za-z][\w:.-]*>")
_UNNUMBERED = re.compile(
    r"%(?!\(|\d+\$|<|%)[^\s\w%]*[\d.*]*[a-zA-Z]+$"
)  # their arguments come in the order of the text
_NAME = re.compile(r"</?([A-Za-z][\w:.-]*)")


class Finder:
    """Finds the placeholders of a text.

    Args:
        own: Regular expressions of a user, which count before ours.
    """

    def __init__(self, own: Iterable[str] = ()) -> None:
        patterns = [*own]
        for pattern in patterns:
            try:
                empty = re.compile(pattern).match("")
            except re.error as error:
                raise InvalidSetting(
                    f"The placeholder pattern '{pattern}' is no regular expression: {error}."
                ) from None
            if empty:
                raise InvalidSetting(f"The placeholder pattern '{pattern}' fits an empty text: make it more exact.")
        every = [*(f"(?:{pattern})" for pattern in patterns), *(f"(?:{pattern})" for pattern in PATTERNS.values())]
        self._pattern = re.compile("|".join(every), re.DOTALL)

    def find(self, text: str) -> list[str]:
        """The placeholders of a text, in their order."""
        return [match[0] for match in self._matches(text)]

    def split(self, text: str) -> Content:
        """The text with its placeholders as tags."""
        parts: list[str | Tag] = []
        end, found = 0, self._matches(text)
        closed = _closed(found)
        for match in found:
            parts += [text[end : match.start()], _tag(match[0], closed)]
            end = match.end()
        return tidy([*parts, text[end:]])

    def remove(self, text: str) -> str:
        """The text without what looks like a placeholder."""
        while found := self._matches(text):  # what is left and right of one may together be another
            for match in reversed(found):
                text = f"{text[: match.start()]} {text[match.end() :]}"
        return text

    def _matches(self, text: str) -> list[re.Match[str]]:
        found = list(self._pattern.finditer(text))
        closed = _closed(found)
        return [match for match in found if not _is_text(match[0], closed)]


def _is_text(raw: str, closed: set[str]) -> bool:
    """Whether it only looks like markup: `<file>` in the usage of a command, which nothing closes.

    `<EOT>` is the name of something, and `<p>` is markup that nothing need close.
    """
    name = raw[1:-1].lower()
    if not _NAME_ONLY.fullmatch(raw) or raw.isupper():
        return False
    return not BLOCK.fullmatch(name) and name not in VOID | closed


def _closed(found: Iterable[re.Match[str]]) -> set[str]:
    """The names of markup that is closed."""
    return {match[0][2:-1].strip().lower() for match in found if match[0].startswith("</")}


def _tag(raw: str, closed: set[str]) -> Tag:
    name = _NAME.match(raw)
    if name is None:
        if raw.startswith(("<!--", "\\")):
            return Tag(raw, Role.POINT)
        return Tag(raw, Role.WORD, IN_ORDER if _UNNUMBERED.match(raw) else "")
    named = name[1].lower()
    if _NAME_ONLY.fullmatch(raw) and raw.isupper() and named not in closed | VOID and not BLOCK.fullmatch(named):
        return Tag(raw, Role.WORD)
    if raw.endswith("/>") or named in VOID:
        return Tag(raw, Role.POINT, named)
    return Tag(raw, Role.CLOSE if raw.startswith("</") else Role.OPEN, named)

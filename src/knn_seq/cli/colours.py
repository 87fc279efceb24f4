"""Colours, where a terminal wants them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TextIO

BOLD, RED, YELLOW = "1", "1;31", "1;33"


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour if the stream is a terminal and nobody said no (`NO_COLOR`, https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain else f"\x1b[{colour}m{text}\x1b[0m"


def rows(facts: Mapping[str, str], width: int, stream: TextIO) -> str:
    """A line for each fact, behind its name, which takes at least `width` columns."""
    width = max(width, *map(len, facts))
    return "\n".join(f"{coloured(f'{name:<{width}}', BOLD, stream)} {fact}" for name, fact in facts.items())


def highlight_labels(text: str, indent: int, stream: TextIO) -> str:
    """A text whose lines begin with a label, or with spaces up to the column `indent`."""
    label = re.compile(rf"^(?! {{{indent}}}).{{{indent}}}", re.MULTILINE)
    return label.sub(lambda match: coloured(match[0], BOLD, stream), text)

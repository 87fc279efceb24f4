"""The translation in what a language model writes."""

from __future__ import annotations

import re

_THOUGHTS = re.compile(r"^\s*<think>.*?(</think>|$)", re.DOTALL)


def clean_answer(text: str) -> str:
    """The first line that says something, without thoughts before it, nor a line such as "Here is the translation:"."""
    lines = [line.strip() for line in _THOUGHTS.sub("", text).splitlines() if line.strip()]
    announced = len(lines) > 1 and lines[0].endswith(":")
    return lines[announced] if lines else ""

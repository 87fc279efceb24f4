"""The translation in what a language model writes."""

from __future__ import annotations

import re

_THOUGHTS = re.compile(r"^\s*<think>.*?(</think>|$)", re.DOTALL)


def clean_answer(text: str, target_language: str | None = None) -> str:
    """The first line that says something, without what was thought before it and without a label.

    Args:
        text: What the model wrote.
        target_language: A label such as "English:" before the translation is left out.
    """
    lines = _THOUGHTS.sub("", text).strip().splitlines()
    labels = "|".join(map(re.escape, filter(None, ("Translation", target_language))))
    first = re.sub(rf"^({labels})\s*:\s*", "", lines[0], flags=re.IGNORECASE) if lines else ""
    if lines and not first.strip() and len(lines) > 1:  # the label stood on a line of its own
        first = next((line for line in lines[1:] if line.strip()), "")
    return first.strip()

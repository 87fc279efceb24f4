"""Where sentences begin: rules for some 300 languages, nothing to download."""

from __future__ import annotations

from itertools import accumulate

from knn_seq.errors import MissingLibrary


def sentence_starts(text: str, language: str | None) -> list[int]:
    """Where the second and each later sentence of a text begins; the spaces between two belong to the first.

    Args:
        text: A paragraph.
        language: Its language ("pt", "pt_BR"); None: unknown, and English rules are used.
    """
    try:
        import sentencex
    except ImportError as error:
        raise MissingLibrary(
            "The library sentencex, which finds sentences, is missing: pip install knn-seq[documents]."
        ) from error
    code = (language or "en").replace("-", "_").split("_")[0].lower()
    parts: list[str] = sentencex.segment(code, text)
    return list(accumulate(map(len, parts)))[:-1] if "".join(parts) == text else []

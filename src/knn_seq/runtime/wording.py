"""Numbers with their nouns, as people write them."""

from __future__ import annotations


def count(number: int, noun: str, plural: str | None = None) -> str:
    """ "1 line", "2,000 lines".

    Args:
        number: How many.
        noun: In the singular.
        plural: Where it is not the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"

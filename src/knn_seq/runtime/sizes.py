"""Numbers of bytes and of things, as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from knn_seq.errors import InvalidSetting

LARGEST = (1 << 63) - 1
_NUMBER = re.compile(r"(\d[\d,]*\.?\d*(?:e[+-]?\d{1,3})?)\s*([a-z]*)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_BYTES = {
    "bytes": 1,
    **{f"{prefix}{b}": 1000**power for prefix, power in _POWERS.items() for b in ("", "b")},
    **{f"{prefix}i{b}": 1024**power for prefix, power in _POWERS.items() if prefix for b in ("", "b")},
}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}


def parse_bytes(text: str | int) -> int:
    """How many bytes "64GB", "512 MiB", "1e9" or a plain number mean; KB is 1000 of them, KiB 1024."""
    number = _parse(text, _BYTES)
    if number is None:
        raise InvalidSetting(f"'{text}' is no size: write a number of bytes above 0 such as 64GB, 512MiB or 1e9.")
    return int(number)


def parse_count(text: str | int) -> int:
    """The whole number that "1e9", "20M" or "1,000,000" means; k is a thousand, M a million, B or G a billion."""
    number = _parse(text, _COUNTS)
    if number is None or number != int(number):
        raise InvalidSetting(f"'{text}' is no count: write a whole number above 0 such as 1e9, 20M or 1,000,000.")
    return int(number)


def format_bytes(number: float) -> str:
    """A number of bytes to read: "1.5 GB"."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if abs(number) < 999.5 or unit == "TB":
            break
        number /= 1000
    return f"{number:,.0f} {unit}" if unit == "bytes" or abs(number) >= 100 else f"{number:,.3g} {unit}"


def _parse(text: str | int, units: dict[str, int]) -> Decimal | None:
    match = _NUMBER.fullmatch(str(text).strip())
    if match is None or match[2].lower() not in units:
        return None
    number = Decimal(match[1].replace(",", "")) * units[match[2].lower()]
    return number if 1 <= number <= LARGEST else None

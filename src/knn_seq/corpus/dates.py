from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

# 2026-11-18T06:50:00Z of ISO 8601, 20261118T065000Z of TMX, "2026-11-18 06:50+0100" of PO
_DATE = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)"
    r"(?:[T ](\d\d):?(\d\d)(?::?(\d\d)(?:[.,]\d+)?)?\s*(?:(Z)|([+-])(\d\d):?(\d\d)?)?)?",
    re.ASCII,
)


def iso_date(text: str | None) -> str | None:
    """A date as 2026-11-18T06:50:00Z, in UTC to the second, from the forms that corpora write; None: it is none.

    A date without a zone is taken for one in UTC, a date without a time for its midnight.
    """
    match = _DATE.fullmatch(text.strip()) if text else None
    if match is None:
        return None
    *numbers, _, sign, hours, minutes = match.groups()
    try:
        date = datetime(*(int(number or 0) for number in numbers), tzinfo=timezone.utc)  # type: ignore[arg-type,misc]
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        date += offset if sign == "-" else -offset
    except (ValueError, OverflowError):
        return None
    return f"{date.year:04}-{date:%m-%dT%H:%M:%SZ}"


def tmx_date(text: str | None) -> str | None:
    """A date as TMX writes it, 20261118T065000Z; None: it is none."""
    date = iso_date(text)
    return date and date.replace("-", "").replace(":", "")

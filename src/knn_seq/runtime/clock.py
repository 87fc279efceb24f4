from __future__ import annotations

import os
from datetime import datetime, timezone


def now() -> str:
    """The date and time, ISO 8601 in UTC to the second; SOURCE_DATE_EPOCH, if it is set, stands still."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(fixed), timezone.utc) if fixed.isdigit() else datetime.now(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

"""Retry-After in all the forms providers send it, as seconds from now.

Whole or fractional seconds, an HTTP date, and `retry-after-ms`. Anything else is junk and means "not said":
negative numbers, infinities, texts. A date in the past means now (C43).
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def parse_retry_after(headers: Mapping[str, str] | None, *, now: datetime | None = None) -> float | None:
    """Seconds to wait, or None where nothing usable was said. Header names in any case.

    A date is counted from the response's own `Date` where there is one (the server's clock decides), else
    from `now`.
    """
    if not headers:
        return None
    lower = {name.lower(): value for name, value in headers.items()}
    milliseconds = _number(lower.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    raw = lower.get("retry-after")
    if raw is None:
        return None
    seconds = _number(raw)
    if seconds is not None:
        return seconds
    until = _date(raw)
    if until is None:
        return None
    sent = _date(lower.get("date")) or now or datetime.now(UTC)
    return max(0.0, (until - sent).total_seconds())


def _number(raw: str | None) -> float | None:
    if raw is None:
        return None
    try:
        value = float(raw.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _date(raw: str | None) -> datetime | None:
    if raw is None:
        return None
    try:
        value = parsedate_to_datetime(raw.strip())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)

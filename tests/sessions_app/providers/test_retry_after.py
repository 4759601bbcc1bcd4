"""Retry-After in every form."""

from datetime import UTC, datetime

import pytest

from sessions_app.providers.retry_after import parse_retry_after

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"Retry-After": "120"}, 120.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "junk", "retry-after": "9"}, 9.0),
        ({"retry-after": "Thu, 01 Jan 2026 12:02:00 GMT"}, 120.0),
        ({"retry-after": "Thursday, 01-Jan-26 12:02:00 GMT"}, 120.0),
        ({"retry-after": "Thu Jan  1 12:02:00 2026"}, 120.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        # The server's own clock decides where it says what it shows.
        ({"retry-after": "Thu, 01 Jan 2026 15:00:30 GMT", "date": "Thu, 01 Jan 2026 15:00:00 GMT"}, 30.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Thu, 99 Jan 2026 12:02:00 GMT"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_forms(headers, wanted):
    """C43, R2."""
    assert parse_retry_after(headers, now=NOON) == wanted
